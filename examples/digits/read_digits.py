"""Reads scanned digits with an old and a new model, and writes what each says of every digit.

    python read_digits.py [--repair SLOPE OFFSET]

The 1,797 digits come with scikit-learn (E. Alpaydin, C. Kaynak, UCI, 1998: 8 x 8 pixels). Each is
read by models that were trained without it. A person reads a digit of which the model is not sure.
Out: `old.csv` and `new.csv`; `--repair` reads the new model's probabilities by Platt scaling.
"""

import argparse
import csv

import numpy as np
from scipy.special import expit, logit
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

SURE = 0.8
WRONG, BY_HAND = 1.00, 0.05
"""What a digit costs that was read wrongly, and one that a person has to read [EUR]."""

COLUMNS = ["id", "pen", "label", "prediction", "probability", "right", "by_hand", "cost"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Reads digits with an old and a new model.")
    parser.add_argument("--repair", nargs=2, type=float, default=(1.0, 0.0))
    slope, offset = parser.parse_args().repair
    digits, labels = load_digits(return_X_y=True)
    ink = digits.sum(axis=1)
    pens = np.array(["thin", "medium", "thick"])[np.digitize(ink, np.quantile(ink, [1 / 3, 2 / 3]))]
    models = {
        "old": LogisticRegression(max_iter=2000),
        "new": ExtraTreesClassifier(random_state=0),
    }
    for name, model in models.items():
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        scores = cross_val_predict(model, digits, labels, cv=folds, method="predict_proba")
        prediction, probability = scores.argmax(axis=1), scores.max(axis=1)
        if name == "new":
            probability = expit(slope * logit(probability) + offset)
        right = prediction == labels
        by_hand = probability < SURE
        cost = np.where(by_hand, BY_HAND, np.where(right, 0.0, WRONG))
        sure = [f"{one:.4f}" for one in probability]
        columns = (pens, labels, prediction, sure, right * 1, by_hand * 1, cost)
        with open(f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(zip(range(len(labels)), *columns, strict=True))
        print(f"{name}.csv: {right.mean():.1%} right, {by_hand.mean():.1%} by hand")


if __name__ == "__main__":
    main()
