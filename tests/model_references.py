"""The reference models on one device, from the formulas that their documents give.

Nothing of the models is imported, and nothing is sharded: each function takes the parameters and
the batch as a step takes them and returns the loss, or the logits. Arrays are worked on whole.
"""

import jax
import jax.numpy as jnp


def cross_entropy(logits, targets):
    """The mean over all positions of minus the logarithm of the target's probability."""
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
    return -jnp.mean(picked)


def rms_norm(x, scale=1.0):
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def causal_attention(query, key, value):
    """Softmax attention of [batch, sequence, heads, channels]; a position sees those before."""
    scores = jnp.einsum("bshd,bthd->bhst", query, key) / jnp.sqrt(query.shape[-1])
    visible = jnp.tri(query.shape[1], dtype=bool)
    weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhst,bthd->bshd", weights, value)


def rotated(x, first, second):
    """Pairs of channels (first[i], second[i]) of x, turned by position x 10000 ** (-i / pairs)."""
    pairs = len(first)
    frequency = 10_000.0 ** -(jnp.arange(pairs) / pairs)
    angle = jnp.arange(x.shape[1])[:, None, None] * frequency
    a, b = x[..., jnp.array(first)], x[..., jnp.array(second)]
    x = x.at[..., jnp.array(first)].set(a * jnp.cos(angle) - b * jnp.sin(angle))
    return x.at[..., jnp.array(second)].set(b * jnp.cos(angle) + a * jnp.sin(angle))


def halves(x):
    """Rotary positions that pair a channel of the first half with one of the second."""
    width = x.shape[-1]
    return rotated(x, range(width // 2), range(width // 2, width))


def neighbours(x):
    """Rotary positions that pair channels 2i and 2i + 1."""
    return rotated(x, range(0, x.shape[-1], 2), range(1, x.shape[-1], 2))


# --- Shardy's guide, and random numbers -----------------------------------------------------------

#: Of its examples that compute the same on any mesh: what they return.
GUIDE = {
    "in-out-shardings": lambda x, w1, w2: jnp.sin((jnp.tanh(x) @ w1) @ w2),
    "constraint": lambda x: x,
    "custom-partitioning-rule": lambda x, y: x @ y,
    "priorities": lambda tokens, table: jnp.tanh(table[tokens]),
    "sub-axes": jnp.cos,
}


def matrix_of_rows(key_data, rows, columns):
    """Gaussians by JAX's Threefry: each row with the key that it has among `rows` keys."""
    keys = jax.random.split(jax.random.wrap_key_data(key_data), rows)
    return jnp.stack([jax.random.normal(key, (columns,)) for key in keys])


# --- the MLP --------------------------------------------------------------------------------------


def mlp(params, batch):
    x = batch["x"]
    for block in range(len(params) // 2):
        x = jnp.sin(jnp.tanh(x) @ params[f"w{2 * block + 1}"] @ params[f"w{2 * block + 2}"])
    return jnp.mean((x - batch["y"]) ** 2)


# --- the transformer with fully sharded data parallelism ------------------------------------------


def fsdp_transformer(params, batch):
    x = params["embedding"][batch["tokens"]]
    layers = params["layers"]
    for number in range(layers["wq"].shape[0]):
        layer = {name: leaf[number] for name, leaf in layers.items()}
        y = rms_norm(x)
        query, key, value = (
            jnp.einsum("bse,ehd->bshd", y, layer[name]) for name in ("wq", "wk", "wv")
        )
        mixed = causal_attention(halves(query), halves(key), value)
        x = x + jnp.einsum("bshd,hde->bse", mixed, layer["wo"])
        y = rms_norm(x)
        x = x + (jax.nn.silu(y @ layer["gate"]) * (y @ layer["up"])) @ layer["down"]
    return cross_entropy(rms_norm(x, params["scale"]) @ params["unembedding"], batch["targets"])


# --- the 3-D tutorial: multi-head latent attention ------------------------------------------------


def latent_attention_logits(params, tokens, heads):
    """Logits [sequences, tokens, vocab] of tokens [sequences, tokens]."""

    def dense(x, layer):
        return x @ layer["kernel"] + layer.get("bias", 0)

    count, length = tokens.shape
    table = params["embedding"]["table"]
    x = table[tokens]
    for number in range(params["layers"]["norm1"]["gamma"].shape[0]):
        layer = jax.tree.map(lambda leaf, at=number: leaf[at], params["layers"])
        own, y = layer["attention"], rms_norm(x, layer["norm1"]["gamma"])
        latent_q, latent = dense(y, own["latent_q"]), dense(y, own["latent_kv"])

        def by_head(y):
            return y.reshape(count, length, heads, -1)

        shared = neighbours(dense(y, own["rotary_k"])[:, :, None])
        rotary = neighbours(by_head(dense(latent_q, own["rotary_q"])))
        query = jnp.concatenate([by_head(dense(latent_q, own["q"])), rotary], -1)
        key = by_head(dense(latent, own["k"]))
        key = jnp.concatenate([key, jnp.repeat(shared, heads, axis=2)], -1)
        mixed = causal_attention(query, key, by_head(dense(latent, own["v"])))
        x = x + dense(mixed.reshape(count, length, -1), own["out"])
        hidden = jax.nn.gelu(dense(rms_norm(x, layer["norm2"]["gamma"]), layer["mlp"]["up"]))
        x = x + dense(hidden, layer["mlp"]["down"])
    return rms_norm(x, params["embedding"]["norm"]["gamma"]) @ table.T


def parallel_3d(params, batch, heads):
    whole = {name: batch[name].reshape(-1, batch[name].shape[-1]) for name in ("tokens", "targets")}
    logits = latent_attention_logits(params, whole["tokens"], heads)
    return cross_entropy(logits, whole["targets"])


# --- Levanter's GPT-2 -----------------------------------------------------------------------------


def gpt2_logits(model, tokens):
    """Logits [batch, positions, vocab]; the model's arrays are taken by the names of their axes."""

    def array(named, *names):
        return jnp.asarray(named.rearrange(names).array)

    def norm(x, layer, at=()):
        mean = x.mean(-1, keepdims=True)
        x = (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
        return x * layer.weight.array[at] + layer.bias.array[at]

    blocks, length = model.transformer.blocks.stacked, tokens.shape[1]
    table = array(model.embeddings.token_embeddings.weight, "vocab", "embed")
    places = array(model.embeddings.position_embeddings.weight, "position", "embed")
    x = table[tokens] + places[:length]
    attn, mlp = blocks.attn, blocks.mlp
    for at in range(blocks.ln_1.weight.axis_size("layers")):
        weight = array(attn.c_attn.weight, "layers", "embed", "qkv", "heads", "head_size")[at]
        bias = array(attn.c_attn.bias, "layers", "qkv", "heads", "head_size")[at]
        product = jnp.einsum("bse,eqhd->qbshd", norm(x, blocks.ln_1, at), weight)
        mixed = causal_attention(*(product + bias[:, None, None]))
        out = array(attn.c_proj.weight, "layers", "heads", "head_size", "embed")[at]
        x = x + jnp.einsum("bshd,hde->bse", mixed, out) + attn.c_proj.bias.array[at]
        wide = norm(x, blocks.ln_2, at) @ array(mlp.c_fc.weight, "layers", "embed", "mlp")[at]
        wide = jax.nn.gelu(wide + mlp.c_fc.bias.array[at])
        back = array(mlp.c_proj.weight, "layers", "mlp", "embed")[at]
        x = x + wide @ back + mlp.c_proj.bias.array[at]
    return norm(x, model.transformer.ln_f) @ table.T


def gpt2(model, tokens):
    """The loss of each position's next token; the last position has none."""
    return cross_entropy(gpt2_logits(model, tokens)[:, :-1], tokens[:, 1:])


# --- AXLearn: experts and tracks ------------------------------------------------------------------


def experts(params, x, capacity):
    """A token goes to the likeliest expert while that has room; and the load's balance.

    Every expert computes every token here, and a mask says whose result counts.
    """
    count = params["gate_weight"].shape[-1]
    gates = jax.nn.softmax(x @ params["gate_weight"], axis=-1)
    chosen = jax.nn.one_hot(jnp.argmax(gates, axis=-1), count)
    room = max(1, -(-int(capacity * x.shape[1]) // count))
    has_room = jnp.cumsum(chosen, axis=1) <= room
    out = 0
    for expert in range(count):
        y = jax.nn.gelu(x @ params["wi_weight"][expert]) @ params["wo_weight"][expert]
        counts = (chosen * has_room * gates)[..., expert]
        out = out + counts[..., None] * y
    load, share = jnp.mean(chosen, axis=(0, 1)), jnp.mean(gates, axis=(0, 1))
    return out, count * jnp.sum(load * share)


def axlearn_transformer(params, batch, heads, capacity, microbatches=1):
    """Cross entropy, and a hundredth of the experts' balance; blocks and tracks are stacked."""

    def dense(x, layer):
        return x @ layer["weight"] + layer.get("bias", 0)

    def layer_of(x, layer):
        own, y = layer["self_attention"], rms_norm(x, layer["norm1"]["scale"])
        query, key, value = (
            dense(y, own[name]).reshape(*y.shape[:2], heads, -1)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        mixed = causal_attention(halves(query), halves(key), value)
        x = x + dense(mixed.reshape(*y.shape[:2], -1), own["o_proj"])
        feed, y = layer["feed_forward"], rms_norm(x, layer["norm2"]["scale"])
        if "gate_weight" in feed:
            added, balance = experts(feed, y, capacity)
            return x + added, balance
        return x + dense(jax.nn.gelu(dense(y, feed["linear1"])), feed["linear2"]), 0

    def track_of(x, layers):
        balances = 0
        for number in range(len(layers)):
            x, balance = layer_of(x, layers[f"layer{number}"])
            balances = balances + balance
        return x, balances

    def of_microbatch(x):
        balances = 0
        stack = params["blocks"]["block"]["track"]
        for block in range(stack["layer0"]["norm1"]["scale"].shape[0]):
            tracks = jax.tree.map(lambda leaf, at=block: leaf[at], stack)
            streams, balance = jax.vmap(track_of, in_axes=(None, 0))(x, tracks)
            x, balances = jnp.mean(streams, axis=0), balances + jnp.mean(balance)
        return x, balances

    table = params["emb"]["weight"]
    x = table[batch["input_ids"]]
    # Which sequences are a microbatch matters to the balance alone.
    parts = x.reshape(-1, microbatches, *x.shape[1:])
    parts, balances = jax.vmap(of_microbatch, in_axes=1, out_axes=(1, 0))(parts)
    x, balance = parts.reshape(x.shape), jnp.mean(balances)
    logits = rms_norm(x, params["output_norm"]["scale"]) @ table.T
    return cross_entropy(logits, batch["target_labels"]) + 0.01 * balance
