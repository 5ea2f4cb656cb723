"""GPT-2 with named axes: what is computed, and nothing of where.

Every array knows its axes by name, in parameters and activations alike, so that no line here says
anything of a mesh. `auto_sharded` (in `haliax.nn.Linear`, and below where no Linear is at hand)
means: wherever the mapping that is in force puts these axes. Without one it does nothing.

The modules are Equinox's, which are pytrees, and the names are those of Levanter.
"""

from typing import Any

import equinox as eqx
import haliax as hax
import haliax.nn as hnn
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray

if not hasattr(jax.core, "is_constant_dim"):
    # Haliax (1.4.dev453) asks for it in every product, and JAX 0.12 has it no longer.
    jax.core.is_constant_dim = lambda size: isinstance(size, int)


class Axes(eqx.Module):
    """The model's axes; two arrays meet along those that they both have.

    `key_position` is `position` by another name: attention has a dimension for the positions that
    ask and one for those that answer, and the two may lie differently.
    """

    batch: Axis = eqx.field(static=True)
    position: Axis = eqx.field(static=True)
    key_position: Axis = eqx.field(static=True)
    embed: Axis = eqx.field(static=True)
    heads: Axis = eqx.field(static=True)
    head_size: Axis = eqx.field(static=True)
    mlp: Axis = eqx.field(static=True)
    vocab: Axis = eqx.field(static=True)
    layers: Axis = eqx.field(static=True)

    @staticmethod
    def of(**sizes: int) -> "Axes":
        """Axes of these sizes: all but `key_position`, which is as long as `position`."""
        axes = {name: Axis(name, size) for name, size in sizes.items()}
        return Axes(key_position=axes["position"].alias("key_position"), **axes)


class Gpt2Config(eqx.Module):
    """The model's axes, and what of it can be chosen.

    Attributes:
        axes: the axes.
        dropout: how likely an attention weight, or a number that is added to the stream, is
            dropped.
        scale_by_inverse_layer_idx: divide the scores of layer i, from 0, by i + 1 (from Mistral).
        upcast: make the scores of float32 queries and keys (from Mistral).
        gradient_checkpointing: keep only each block's input, and compute the rest again.
    """

    axes: Axes
    dropout: float = eqx.field(static=True, default=0.0)
    scale_by_inverse_layer_idx: bool = eqx.field(static=True, default=False)
    upcast: bool = eqx.field(static=True, default=False)
    gradient_checkpointing: bool = eqx.field(static=True, default=True)


def split(key: NamedArray | None, into: Axis) -> NamedArray | None:
    """Of a key for each example, `[batch, key]`, as many as `into` has: `[batch, into, key]`.

    A key is its words, along `key`: Haliax can't take a slice of JAX's key arrays up to JAX 0.7.
    Without a key there are none. Examples are on several devices, each of which splits its own.
    """
    if key is None:
        return None
    batch, words = key.axes

    def split(key: NamedArray) -> NamedArray:
        keys = jax.random.split(jax.random.wrap_key_data(key.array), into.size)
        return NamedArray(jax.random.key_data(keys), (into, words))

    return hax.vmap(split, batch)(key)


def drop(
    dropout: hnn.Dropout, x: NamedArray, *, key: NamedArray | None, inference: bool
) -> NamedArray:
    """`x` with each example's numbers dropped by its own key, of `[batch, key]`."""
    if key is None:  # Without a key Haliax does nothing, or says that it needs one.
        return dropout(x, key=None, inference=inference)
    batch, _ = key.axes

    def of_example(x: NamedArray, key: NamedArray) -> NamedArray:
        return dropout(x, key=jax.random.wrap_key_data(key.array), inference=inference)

    return hax.vmap(of_example, batch)(x, key)


class Cache(eqx.Module):
    """Keys and values `[batch, key_position, heads, head_size]`, of each block along `layers`."""

    keys: NamedArray
    values: NamedArray

    @staticmethod
    def of(axes: Axes, dtype: Any) -> "Cache":
        """Room for all positions of all layers."""
        shape = (axes.layers, axes.batch, axes.key_position, axes.heads, axes.head_size)
        return Cache(hax.zeros(shape, dtype), hax.zeros(shape, dtype))


class Gpt2Attention(eqx.Module):
    """Causal attention."""

    config: Gpt2Config
    c_attn: hnn.Linear  # [embed] -> [qkv, heads, head_size]
    c_proj: hnn.Linear  # [heads, head_size] -> [embed]
    dropout: hnn.Dropout = eqx.field(static=True)

    @staticmethod
    def init(config: Gpt2Config, *, key: Any) -> "Gpt2Attention":
        """With random weights."""
        axes = config.axes
        k_attn, k_proj = jax.random.split(key)
        heads = (axes.heads, axes.head_size)
        return Gpt2Attention(
            config,
            hnn.Linear.init(axes.embed, (Axis("qkv", 3), *heads), key=k_attn),
            hnn.Linear.init(heads, axes.embed, key=k_proj),
            hnn.Dropout(config.dropout),
        )

    @jax.named_scope("attn")
    def __call__(
        self, x: NamedArray, layer_idx: NamedArray, *, key: NamedArray | None, inference: bool
    ) -> NamedArray:
        """Keeps `[batch, position, embed]`; `key` is `[batch, key]`."""
        return self._causal(x, layer_idx, key=key, inference=inference)[0]

    @jax.named_scope("attn")
    def prefill(self, x: NamedArray, layer_idx: NamedArray) -> tuple[NamedArray, "Cache"]:
        """The same of a prompt, and its keys and values with room for all positions."""
        axes = self.config.axes
        mixed, *keys_and_values = self._causal(x, layer_idx, key=None, inference=True)
        room = (*x.axes[:1], axes.key_position, axes.heads, axes.head_size)
        keys, values = (
            hax.auto_sharded(hax.zeros(room, own.dtype).updated_slice({"key_position": 0}, own))
            for own in keys_and_values
        )
        return mixed, Cache(keys, values)

    def _causal(
        self, x: NamedArray, layer_idx: NamedArray, *, key: NamedArray | None, inference: bool
    ) -> tuple[NamedArray, NamedArray, NamedArray]:
        """What positions take from those before and themselves, and the keys and values of all."""
        query, keys, values = self.c_attn(x).unbind("qkv")
        # Under the new name they lie where `key_position` is mapped to. With queries in parts, and
        # keys in none, this is where the keys and values of a sequence come together.
        keys, values = (
            hax.auto_sharded(each.rename({"position": "key_position"})) for each in (keys, values)
        )
        position, key_position = x.resolve_axis("position"), keys.resolve_axis("key_position")
        causal = hax.arange(position) >= hax.arange(key_position).broadcast_axis(position)
        mixed = self._mixed(query, keys, values, causal, layer_idx, key=key, inference=inference)
        return mixed, keys, values

    @jax.named_scope("attn")
    def decode(
        self, x: NamedArray, layer_idx: NamedArray, cache: "Cache", length: Any
    ) -> tuple[NamedArray, "Cache"]:
        """The same of one position more, with the keys and values of those before and its own."""
        axes = self.config.axes
        query, *keys_and_values = self.c_attn(x).unbind("qkv")
        keys, values = (
            hax.auto_sharded(
                before.updated_slice(
                    {"key_position": length}, own.broadcast_axis(Axis("key_position", 1))
                )
            )
            for before, own in zip((cache.keys, cache.values), keys_and_values, strict=True)
        )
        causal = hax.arange(axes.key_position) <= length
        mixed = self._mixed(query, keys, values, causal, layer_idx, key=None, inference=True)
        return mixed, Cache(keys, values)

    def _mixed(
        self,
        query: NamedArray,
        keys: NamedArray,
        values: NamedArray,
        causal: NamedArray,
        layer_idx: NamedArray,
        *,
        key: NamedArray | None,
        inference: bool,
    ) -> NamedArray:
        """What the positions that ask take from those that answer, `causal` of them."""
        axes = self.config.axes
        # Scaled before the product, which keeps bfloat16 small; the softmax is in float32.
        query = query * axes.head_size.size**-0.5
        if self.config.scale_by_inverse_layer_idx:
            query = query / (layer_idx + 1).astype(query.dtype)
        if self.config.upcast:
            query, keys = query.astype(jnp.float32), keys.astype(jnp.float32)
        scores = hax.dot(query, keys, axis=axes.head_size).astype(jnp.float32)
        weights = hnn.softmax(hax.where(causal, scores, -1e9), axis="key_position")
        weights = weights.astype(values.dtype)
        weights = drop(self.dropout, weights, key=key, inference=inference)
        mixed = hax.dot(weights, values, axis="key_position")
        return self.c_proj(hax.auto_sharded(mixed))


class Gpt2Mlp(eqx.Module):
    """Two layers, of which the one between is wide."""

    c_fc: hnn.Linear  # [embed] -> [mlp]
    c_proj: hnn.Linear  # [mlp] -> [embed]

    @staticmethod
    def init(axes: Axes, *, key: Any) -> "Gpt2Mlp":
        """With random weights."""
        k_fc, k_proj = jax.random.split(key)
        return Gpt2Mlp(
            hnn.Linear.init(axes.embed, axes.mlp, key=k_fc),
            hnn.Linear.init(axes.mlp, axes.embed, key=k_proj),
        )

    @jax.named_scope("mlp")
    def __call__(self, x: NamedArray) -> NamedArray:
        """Keeps `[batch, position, embed]`."""
        return self.c_proj(hnn.gelu(self.c_fc(x)))


class Gpt2Block(eqx.Module):
    """Attention and MLP, each added to the stream."""

    ln_1: hnn.LayerNorm
    attn: Gpt2Attention
    ln_2: hnn.LayerNorm
    mlp: Gpt2Mlp
    resid_dropout: hnn.Dropout = eqx.field(static=True)

    @staticmethod
    def init(config: Gpt2Config, *, key: Any) -> "Gpt2Block":
        """With random weights."""
        axes = config.axes
        k_attn, k_mlp = jax.random.split(key)
        return Gpt2Block(
            hnn.LayerNorm.init(axes.embed),
            Gpt2Attention.init(config, key=k_attn),
            hnn.LayerNorm.init(axes.embed),
            Gpt2Mlp.init(axes, key=k_mlp),
            hnn.Dropout(config.dropout),
        )

    def __call__(
        self, x: NamedArray, layer_idx: NamedArray, *, key: NamedArray | None, inference: bool
    ) -> NamedArray:
        """Keeps `[batch, position, embed]`; `key` is `[batch, key]`."""
        keys = split(key, Axis("use", 3))
        k_weights, k_attn, k_mlp = (None,) * 3 if keys is None else keys.unbind("use")
        added = self.attn(self.ln_1(x), layer_idx, key=k_weights, inference=inference)
        x = x + drop(self.resid_dropout, added, key=k_attn, inference=inference)
        added = self.mlp(self.ln_2(x))
        return x + drop(self.resid_dropout, added, key=k_mlp, inference=inference)

    def prefill(self, x: NamedArray, layer_idx: NamedArray) -> tuple[NamedArray, Cache]:
        """The same of a prompt; see `Gpt2Attention.prefill`."""
        added, cache = self.attn.prefill(self.ln_1(x), layer_idx)
        x = x + added
        return x + self.mlp(self.ln_2(x)), cache

    def decode(
        self, x: NamedArray, layer_idx: NamedArray, cache: Cache, length: Any
    ) -> tuple[NamedArray, Cache]:
        """The same of one position more; see `Gpt2Attention.decode`."""
        added, cache = self.attn.decode(self.ln_1(x), layer_idx, cache, length)
        x = x + added
        return x + self.mlp(self.ln_2(x)), cache


class Gpt2Embeddings(eqx.Module):
    """A row for each token and one for each position; the tokens' rows are the logits', too."""

    token_embeddings: hnn.Embedding
    position_embeddings: hnn.Embedding

    @staticmethod
    def init(axes: Axes, *, key: Any) -> "Gpt2Embeddings":
        """With random weights."""
        k_token, k_position = jax.random.split(key)
        return Gpt2Embeddings(
            hnn.Embedding.init(axes.vocab, axes.embed, key=k_token),
            hnn.Embedding.init(axes.position, axes.embed, key=k_position),
        )

    @jax.named_scope("embeddings")
    def embed(self, input_ids: NamedArray) -> NamedArray:
        """Tokens `[batch, position]`, of the first positions, to `[batch, position, embed]`."""
        # The table first: rows that were looked up in a table with `embed` in parts have it in
        # parts, where their batch belongs, and XLA's way from one to the other is everything
        # everywhere.
        table = hax.auto_sharded(self.token_embeddings.weight)
        rows = hax.auto_sharded(table.take("vocab", input_ids))
        places, count = self.position_embeddings.weight, input_ids.axis_size("position")
        if count < places.axis_size("position"):
            places = places["position", hax.ds(0, Axis("position", count))]
        return hax.auto_sharded(rows + places)

    @jax.named_scope("embeddings")
    def embed_at(self, input_ids: NamedArray, position: Any) -> NamedArray:
        """The same for the tokens of one position, `[batch]`, to `[batch, embed]`."""
        table = hax.auto_sharded(self.token_embeddings.weight)
        rows = hax.auto_sharded(table.take("vocab", input_ids))
        return hax.auto_sharded(rows + self.position_embeddings.weight["position", position])

    @jax.named_scope("unembed")
    def unembed(self, x: NamedArray) -> NamedArray:
        """`[batch, position, embed]` to logits `[batch, position, vocab]`."""
        return hax.auto_sharded(hax.dot(x, self.token_embeddings.weight, axis="embed"))


class Gpt2Transformer(eqx.Module):
    """Blocks, stacked along `layers` and run in one loop."""

    blocks: hnn.Stacked[Gpt2Block]
    ln_f: hnn.LayerNorm

    @staticmethod
    def init(config: Gpt2Config, *, key: Any) -> "Gpt2Transformer":
        """With random weights."""
        axes = config.axes
        keys = jax.random.split(key, axes.layers.size)
        stack = hnn.Stacked.init(
            axes.layers, Gpt2Block, gradient_checkpointing=config.gradient_checkpointing
        )
        return Gpt2Transformer(stack(config, key=keys), hnn.LayerNorm.init(axes.embed))

    @jax.named_scope("transformer")
    def __call__(
        self, x: NamedArray, *, key: NamedArray | None = None, inference: bool = True
    ) -> NamedArray:
        """Keeps `[batch, position, embed]`; `key` is `[batch, key]`."""
        layers = self.blocks.Block
        keys = split(key, layers)
        return self.ln_f(self.blocks.fold(x, hax.arange(layers), key=keys, inference=inference))

    @jax.named_scope("transformer")
    def prefill(self, x: NamedArray) -> tuple[NamedArray, Cache]:
        """The same of a prompt; see `Gpt2Attention.prefill`."""

        def block(
            layer: Gpt2Block, x: NamedArray, layer_idx: NamedArray
        ) -> tuple[NamedArray, Cache]:
            return layer.prefill(x, layer_idx)

        x, cache = self.blocks.scan_via(block)(x, hax.arange(self.blocks.Block))
        return self.ln_f(x), cache

    @jax.named_scope("transformer")
    def decode(self, x: NamedArray, cache: Cache, length: Any) -> tuple[NamedArray, Cache]:
        """The same of one position more; see `Gpt2Attention.decode`."""

        def block(
            layer: Gpt2Block, x: NamedArray, layer_idx: NamedArray, cache: Cache
        ) -> tuple[NamedArray, Cache]:
            return layer.decode(x, layer_idx, cache, length)

        x, cache = self.blocks.scan_via(block)(x, hax.arange(self.blocks.Block), cache)
        return self.ln_f(x), cache


class Gpt2LMHeadModel(eqx.Module):
    """Tokens to logits."""

    transformer: Gpt2Transformer
    embeddings: Gpt2Embeddings

    @staticmethod
    def init(config: Gpt2Config, *, key: Any) -> "Gpt2LMHeadModel":
        """With random weights."""
        k_transformer, k_embeddings = jax.random.split(key)
        return Gpt2LMHeadModel(
            Gpt2Transformer.init(config, key=k_transformer),
            Gpt2Embeddings.init(config.axes, key=k_embeddings),
        )

    def __call__(
        self, input_ids: NamedArray, *, key: NamedArray | None = None, inference: bool = True
    ) -> NamedArray:
        """Tokens `[batch, position]` to logits `[batch, position, vocab]`.

        Args:
            input_ids: the tokens.
            key: a key for each example, `[batch, key]`: what dropout needs, unless for inference.
            inference: drop nothing.
        """
        x = self.transformer(self.embeddings.embed(input_ids), key=key, inference=inference)
        return self.embeddings.unembed(x)

    def prefill(self, input_ids: NamedArray) -> tuple[NamedArray, Cache]:
        """A prompt `[batch, position]` to the logits `[batch, vocab]` of its last token."""
        x, cache = self.transformer.prefill(self.embeddings.embed(input_ids))
        return self.embeddings.unembed(x["position", -1]), cache

    def decode(self, input_ids: NamedArray, cache: Cache, length: Any) -> tuple[NamedArray, Cache]:
        """One token of each example, `[batch]`, to logits `[batch, vocab]`.

        Args:
            input_ids: the tokens.
            cache: keys and values of those before.
            length: how many these are.
        """
        x = self.embeddings.embed_at(input_ids, length)
        x, cache = self.transformer.decode(x, cache, length)
        return self.embeddings.unembed(x), cache


@jax.named_scope("loss")
def next_token_loss(axes: Axes, logits: NamedArray, input_ids: NamedArray) -> jax.Array:
    """Mean cross entropy of each position's logits and the token after it; the last has none."""
    target = hax.auto_sharded(hax.roll(input_ids, -1, axes.position))
    wanted = hnn.one_hot(target, axes.vocab, dtype=logits.dtype)
    followed = hax.arange(axes.position) < axes.position.size - 1
    loss = hnn.cross_entropy_loss(logits, axes.vocab, wanted, where=followed, reduction=hax.mean)
    return loss.scalar()
