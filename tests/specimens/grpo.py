"""GRPO: answers are generated word by word, rewarded in Python, and trained on twice."""

import time

import torch
from torch import nn

ITERATIONS, GROUP, PROMPT, ANSWER, EPOCHS = 12, 6, 4, 12, 2
WORDS, WIDTH = 20, 16


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, text):
        time.sleep(0.001)
        return self.head(self.words(text).cumsum(dim=1).tanh())  # of all words so far


def generate(model, text):
    with torch.no_grad():
        for _ in range(ANSWER):
            chances = model(text)[:, -1].softmax(-1)
            text = torch.cat([text, torch.multinomial(chances, 1)], dim=1)
    return text


def log_probs_of(model, text):
    found = model(text[:, :-1]).log_softmax(-1)
    return found.gather(2, text[:, 1:, None])[:, PROMPT - 1 :, 0]


def reward(answer):
    time.sleep(0.001)
    return float(sum(word % 2 == 0 for word in answer.tolist()))


torch.manual_seed(0)
model, reference = Language(), Language()
reference.load_state_dict(model.state_dict())
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for iteration in range(ITERATIONS):
    prompt = torch.randint(WORDS, (1, PROMPT)).repeat(GROUP, 1)
    text = generate(model, prompt)
    rewards = torch.tensor([reward(answer) for answer in text[:, PROMPT:]])
    with torch.no_grad():
        old, fixed = log_probs_of(model, text), log_probs_of(reference, text)
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    for _ in range(EPOCHS):
        new = log_probs_of(model, text)
        ratio, apart = (new - old).exp(), fixed - new
        distance = (apart.exp() - apart - 1).mean()
        loss = 0.04 * distance - (ratio.clamp(0.8, 1.2) * advantages[:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if iteration % 3 == 0:
        print(f"iteration {iteration} reward {rewards.mean().item()!r} loss {loss.item()!r}")
