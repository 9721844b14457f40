"""The method in which Keras changes the weights; it is no optimizer of torch's."""


class BaseOptimizer:
    def __init__(self, rate, gradient_accumulation_steps=None):
        self.rate = rate
        self.every = gradient_accumulation_steps or 1
        self.iterations = 0
        self.sums = None

    def apply(self, gradients, weights):
        self.iterations += 1
        if self.every > 1:
            sums = self.sums or [0.0] * len(weights)
            self.sums = [old + new for old, new in zip(sums, gradients, strict=True)]
            if self.iterations % self.every:
                return
            gradients = [one / self.every for one in self.sums]
            self.sums = None
        self._backend_update_step(gradients, weights, self.rate)

    def _backend_update_step(self, gradients, weights, rate):
        for gradient, weight in zip(gradients, weights, strict=True):
            weight.sub_(rate * gradient)


class SGD(BaseOptimizer):
    pass
