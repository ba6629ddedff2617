# SPDX-License-Identifier: Apache-2.0
"""gate_proj and up_proj of a patched model: merged, and never at the price of what they are."""

import copy
import io
import pickle
from collections import Counter

import pytest
import torch
from helpers.models import close, logits
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from vllm_ops.shared import backends
from vllm_ops.shared.integrations._linear import FusedLinear
from vllm_ops.shared.integrations.transformers import patch_model, unpatch_model


class Products(TorchDispatchMode):
    """Counts matrix products, those of the operator among them."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[func._schema.name] += 1
        return func(*args, **(kwargs or {}))


def products(mlp):
    """Matrix products that one call of a block takes."""
    x = torch.ones(1, 3, 64, dtype=mlp.down_proj.weight.dtype)
    with torch.no_grad(), Products() as counter:
        mlp(x)
    return sum(counter.calls[name] for name in ("aten::mm", "aten::addmm", "vllm_ops::linear"))


def block(model):
    return model.model.layers[0].mlp


@pytest.fixture
def pair(build):
    native = build()
    fused = copy.deepcopy(native)
    patch_model(fused)
    return native, fused


def test_one_product_for_both(pair, ids):
    native, fused = pair
    assert products(block(native)) == 3
    assert products(block(fused)) == 2
    close(logits(fused, ids), logits(native, ids))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_one_product_for_both_where_the_linears_are_swapped(build, dtype, monkeypatch):
    """In half precision on a CPU whose torch has no instructions for it. The bits are those of two
    products: a channel's sum does not depend on the others."""
    path = backends.LinearPath(True, "for the test")
    monkeypatch.setattr(backends, "linear_path", lambda name, dtype: path)
    model = build(dtype=dtype)
    patch_model(model)
    mlp = block(model)
    assert isinstance(mlp.gate_proj, FusedLinear)
    assert products(mlp) == 2
    x = torch.randn(5, 64).to(dtype)
    with torch.no_grad():
        merged = mlp(x)
        mlp.merged = None
        assert products(mlp) == 3
        assert torch.equal(mlp(x), merged)
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    for other in (copy.deepcopy(model), again, model.to(torch.float64).to(dtype)):
        assert products(block(other)) == 2
    with torch.no_grad():
        assert torch.equal(block(again)(x), merged)
    mlp.up_proj.register_forward_hook(lambda *_: None)
    assert products(mlp) == 3
    unpatch_model(model)
    assert products(mlp) == 3
    assert type(mlp.gate_proj) is nn.Linear


def test_parameters_are_the_same_objects_with_the_same_values(build):
    model = build()
    before = dict(model.named_parameters())
    values = {name: value.detach().clone() for name, value in before.items()}
    patch_model(model)
    for name, value in model.named_parameters():
        assert value is before[name]
        assert torch.equal(value, values[name])


def test_merging_can_be_declined(build, ids):
    model = build()
    before = logits(model, ids)
    addresses = [value.data_ptr() for value in model.parameters()]
    patch_model(model, merge_projections=False)
    assert [value.data_ptr() for value in model.parameters()] == addresses
    assert products(block(model)) == 3
    close(logits(model, ids), before)
    model.to(torch.float64).to(torch.float32)
    assert products(block(model)) == 3


def test_unpatching_gives_each_weight_its_own_memory(pair):
    _, fused = pair
    weights = block(fused).gate_proj.weight, block(fused).up_proj.weight
    assert weights[0].untyped_storage().data_ptr() == weights[1].untyped_storage().data_ptr()
    unpatch_model(fused)
    assert weights[0].untyped_storage().data_ptr() != weights[1].untyped_storage().data_ptr()
    assert all(weight.untyped_storage().nbytes() == weight.nbytes for weight in weights)
    assert products(block(fused)) == 3


def test_conversion_merges_again(pair, ids):
    native, fused = (model.to(torch.float64) for model in pair)
    assert products(block(fused)) == 2
    close(logits(fused, ids).float(), logits(native, ids).float())


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])  # noqa: S301
def test_copies_are_merged_on_their_own(pair, ids, clone):
    _, fused = pair
    other = clone(fused)
    assert products(block(fused)) == products(block(other)) == 2
    with torch.no_grad():
        block(other).up_proj.weight.zero_()
    assert not torch.equal(logits(other, ids), logits(fused, ids))
    assert block(fused).up_proj.weight.abs().max() > 0


def test_saving_a_patched_model_takes_no_more_room(pair):
    sizes = []
    for model in pair:
        torch.save(model, written := io.BytesIO())
        sizes.append(len(written.getvalue()))
    both = sum(value.nbytes for value in (block(pair[0]).gate_proj.weight,) * 2)
    assert sizes[1] - sizes[0] < both / 2
    written.seek(0)
    assert products(block(torch.load(written, weights_only=False))) == 2


@pytest.mark.parametrize("assign", [False, True])
def test_loaded_weights_are_used(pair, build, ids, assign):
    _, fused = pair
    other = build(num_hidden_layers=2)
    with torch.no_grad():
        for value in other.parameters():
            value.mul_(0.9)
    fused.load_state_dict(copy.deepcopy(other.state_dict()), assign=assign)
    close(logits(fused, ids), logits(other, ids))
    assert products(block(fused)) == (3 if assign else 2)


def test_updates_in_place_are_used(pair, ids):
    for model in pair:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    close(logits(pair[1], ids), logits(pair[0], ids))
    assert products(block(pair[1])) == 2


def test_two_patched_models_share_their_weights(pair, ids):
    _, fused = pair
    expected = logits(fused, ids)
    other = copy.deepcopy(fused, {id(value): value for value in fused.parameters()})
    assert products(block(fused)) == products(block(other)) == 2
    assert block(other).up_proj.weight is block(fused).up_proj.weight
    assert torch.equal(logits(other, ids), expected)
    assert torch.equal(logits(fused, ids), expected)


def test_state_dict_can_be_written_as_safetensors(pair, tmp_path):
    from safetensors.torch import load_file, save_file

    native, fused = pair
    save_file(fused.state_dict(), tmp_path / "fused.safetensors")
    read = load_file(tmp_path / "fused.safetensors")
    assert all(torch.equal(read[name], value) for name, value in native.state_dict().items())


def test_hooks_on_projections_still_run(pair, ids):
    seen = []
    for model in pair:
        model.model.layers[0].mlp.gate_proj.register_forward_hook(lambda *_: seen.append(1))
    close(logits(pair[1], ids), logits(pair[0], ids))
    assert len(seen) == 2


class Doubled(nn.Module):
    """Stands for an adapter or a quantised layer in place of a Linear."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.weight = base.weight

    def forward(self, x):
        return 2 * self.base(x)


def test_replaced_projections_are_called(pair, ids):
    for model in pair:
        mlp = model.model.layers[0].mlp
        mlp.up_proj = Doubled(mlp.up_proj)
    close(logits(pair[1], ids), logits(pair[0], ids))


def test_projections_with_bias(build, ids):
    model = build(mlp_bias=True, attention_bias=True)
    before = logits(model, ids)
    patch_model(model)
    close(logits(model, ids), before)
