"""Trains a small character-level GPT on the text beside it, in plain PyTorch.

Nothing here knows about Steptime: it is the kind of script one puts `steptime run --` in front of.
Needs torch and nothing else; about half a minute on two CPU cores.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TEXT = Path(__file__).parent / "tinyshakespeare.txt"
BLOCK_SIZE = 64
BATCH_SIZE = 12
NUM_LAYERS = 4
NUM_HEADS = 4
WIDTH = 128
DROPOUT = 0.1


class CharBlocks(Dataset):
    """Consecutive blocks of a text; the target is the same block one character later."""

    def __init__(self, text, char_to_id):
        self.ids = torch.tensor([char_to_id[char] for char in text])

    def __len__(self):
        return (len(self.ids) - 1) // BLOCK_SIZE

    def __getitem__(self, index):
        start = index * BLOCK_SIZE
        chunk = self.ids[start : start + BLOCK_SIZE + 1]
        return chunk[:-1], chunk[1:]


class SelfAttention(nn.Module):
    """Multi-head attention in which a character sees itself and what came before."""

    def __init__(self):
        super().__init__()
        self.to_qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.to_out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.to_qkv(x).view(batch, length, 3, NUM_HEADS, WIDTH // NUM_HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        dropout = DROPOUT if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.to_out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    """One transformer layer: attention, then a two-layer network, each added to its input."""

    def __init__(self):
        super().__init__()
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.attention = SelfAttention()
        self.norm_mlp = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm_attention(x)))
        return x + self.dropout(self.mlp(self.norm_mlp(x)))


class CharGPT(nn.Module):
    """Predicts the next character at every position of a block."""

    def __init__(self, num_chars):
        super().__init__()
        self.char_embedding = nn.Embedding(num_chars, WIDTH)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(BLOCK_SIZE, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(NUM_LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, num_chars)

    def forward(self, ids):
        x = self.char_embedding(ids) + self.position_embedding[: ids.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def make_loaders():
    text = TEXT.read_text(encoding="utf-8")
    char_to_id = {char: index for index, char in enumerate(sorted(set(text)))}
    cut = int(0.9 * len(text))
    train = CharBlocks(text[:cut], char_to_id)
    val = CharBlocks(text[cut:], char_to_id)
    train_loader = DataLoader(train, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
    return train_loader, DataLoader(val, batch_size=BATCH_SIZE), len(char_to_id)


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model, loader, num_batches=20):
    model.eval()
    total = 0.0
    for index, (ids, targets) in enumerate(loader):
        if index == num_batches:
            break
        total += cross_entropy(model(ids), targets).item()
    model.train()
    return total / num_batches


def batches_forever(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_loader, val_loader, num_chars = make_loaders()
    model = CharGPT(num_chars)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    batches = batches_forever(train_loader)
    for step in range(1, args.steps + 1):
        ids, targets = next(batches)
        loss = cross_entropy(model(ids), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step == 1 or step % 50 == 0:
            print(f"step {step:5d}   train loss {loss.item():.3f}", flush=True)
        if step % args.eval_every == 0:
            val_loss = evaluate(model, val_loader)
            print(f"step {step:5d}   val loss   {val_loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
