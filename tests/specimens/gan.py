"""GAN: two optimizers in turn, three backwards a round; the discriminator is slow."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def forward(self, x):
        time.sleep(0.005)
        return self.main(x)


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(200, 32)), batch_size=8, shuffle=True)
netD = Discriminator()
netG = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32))
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))

for i, (real,) in enumerate(loader):
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    netD.zero_grad()
    errD_real = criterion(netD(real), ones)
    errD_real.backward()
    fake = netG(torch.randn(len(real), 8))
    errD_fake = criterion(netD(fake.detach()), zeros)
    errD_fake.backward()
    optimizerD.step()

    netG.zero_grad()
    errG = criterion(netD(fake), ones)
    errG.backward()
    optimizerG.step()
    if i % 5 == 0:
        print(f"{i} Loss_D {(errD_real + errD_fake).item()!r} Loss_G {errG.item()!r}")
