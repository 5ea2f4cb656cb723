"""The stages that a program goes through; only these modules import jax."""
