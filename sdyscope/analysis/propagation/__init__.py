"""Why a value is sharded as it is after propagation."""
