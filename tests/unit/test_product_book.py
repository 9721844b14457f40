"""What the guest sees of products: their sizes, their weights, their lines."""

import inspect

import pytest
import torch
from torch import nn

from steptime.guest.count.operators.product_book import MAX_PRODUCTS
from unit.seen_products import only, seen_of


def test_a_linear_layer_has_its_weights_axes_in_all_three_products():
    seen = seen_of(nn.Sequential(nn.Linear(16, 4), nn.Linear(4, 3)), torch.randn(8, 16))

    forward = only(seen, which="forward", weight="Sequential.1.weight")
    assert [forward.sizes[name] for name in ("m", "n", "inner")] == [8, 3, 4]
    assert forward.sizes["axes"] == (None, 0, 1)
    back = [one for one in seen.products if (one.which, one.weight) == ("backward", forward.weight)]
    of_input = next(one for one in back if one.sizes["m"] == 8)
    of_weight = next(one for one in back if one.sizes["m"] == 3)
    assert of_input.sizes["axes"] == (None, 1, 0)
    assert [of_input.sizes[name] for name in ("m", "n", "inner")] == [8, 4, 3]
    assert of_weight.sizes["axes"] == (0, 1, None)
    assert of_weight.sizes["inner"] == 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 6)

    def forward(self, x):
        return self.head(x)


def test_a_product_has_the_module_and_the_line_that_it_comes_from():
    seen = seen_of(Net(), torch.randn(4, 6, requires_grad=True))

    lines, first = inspect.getsourcelines(Net.forward)
    line = first + next(at for at, text in enumerate(lines) if "self.head" in text)
    assert {(one.place.file, one.place.line) for one in seen.products} == {(__file__, line)}
    assert {(one.module, one.module_kind) for one in seen.products} == {("Net.head", "Linear")}
    assert [one.which for one in seen.products].count("backward") == 2


def test_a_square_weight_is_known_by_its_strides():
    seen = seen_of(Net(), torch.randn(4, 6, requires_grad=True))

    assert only(seen, which="forward").sizes["axes"] == (None, 0, 1)
    gradients = {one.sizes["axes"] for one in seen.products if one.which == "backward"}
    assert (None, 1, 0) in gradients


def test_a_weight_is_known_in_the_copy_that_autocast_makes():
    model = nn.Linear(16, 8)

    def cast(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    seen = seen_of(cast, torch.randn(4, 16))

    forward = only(seen, which="forward")
    assert (forward.weight, forward.dtype) == ("Linear.weight", "bfloat16")
    assert forward.sizes["axes"] == (None, 0, 1)


def test_convolutions_have_channels_kernel_and_space():
    model = nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)

    seen = seen_of(model, torch.randn(2, 4, 9, 9, requires_grad=True))

    forward = only(seen, which="forward")
    sizes = forward.sizes
    assert (sizes["channels_in"], sizes["channels_out"], sizes["groups"]) == (4, 6, 2)
    assert (sizes["kernel"], sizes["space"], sizes["wanted"]) == ((3, 3), (9, 9), ())
    assert only(seen, which="backward").sizes["wanted"] == (True, True)


def test_a_turned_convolution_has_its_channels_the_right_way_round():
    seen = seen_of(nn.ConvTranspose2d(4, 6, 2), torch.randn(1, 4, 5, 5))

    sizes = only(seen, which="forward").sizes
    assert (sizes["channels_in"], sizes["channels_out"], sizes["transposed"]) == (4, 6, True)


def test_fused_attention_has_heads_and_head_size():
    def attend(x):
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    seen = seen_of(attend, torch.randn(2, 3, 8, 16, requires_grad=True))

    forward = only(seen, kind="attention", which="forward")
    assert (forward.sizes["heads"], forward.sizes["head_size"]) == (3, 16)
    assert forward.sizes["is_causal"] is True
    assert only(seen, kind="attention", which="backward").num == 1


def test_a_recurrent_layer_has_its_gates_and_both_matrices():
    class Texts(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.memory = nn.Embedding(9, 5), nn.LSTM(5, 7)

        def forward(self, x):
            return self.memory(self.words(x))[0]

    seen = seen_of(Texts(), torch.randint(9, (4, 2)))

    shapes = {one.name: one.shape for one in seen.weights}
    assert shapes["Texts.memory.weight_hh_l0"] == (28, 7)
    assert shapes["Texts.memory.weight_ih_l0"] == (28, 5)
    assert [one.name for one in seen.weights if one.is_embedding] == ["Texts.words.weight"]


def test_products_of_one_place_are_one_row():
    model = nn.Linear(4, 4)

    def again(x):
        for _ in range(3):
            x = model(x)
        return x

    seen = seen_of(again, torch.randn(2, 4))

    assert only(seen, which="forward").num == 3
    assert len(seen.products) < MAX_PRODUCTS
    assert seen.devices[0].kind == "cpu"


@pytest.mark.parametrize("kind", ["products", "sparse"])
def test_what_is_no_dense_product_of_matrices_is_left_out(kind):
    def odd(x):
        if kind == "sparse":
            return torch.sparse.mm(torch.eye(4).to_sparse(), x)
        return x * 2

    assert not seen_of(odd, torch.randn(4, 4, requires_grad=True)).products
