#!/usr/bin/env python3
"""Made orders.csv and stock.csv, once; they are committed, and this is kept to tell how they came about.

A feed as real ones are: most orders come once, some twice or three times (the sender was not sure), some twice with different contents,
and some lines are no orders at all. A few goods are wanted much more than the others, and more than there are.
"""

import csv
import random

random.seed(20261120)

GOODS = {  # sku: (units on stock, how much wanted)
    "TEA-ASSAM": (90, 9),
    "TEA-SENCHA": (60, 7),
    "MUG-BLUE": (40, 6),
    "MUG-WHITE": (60, 3),
    "POT-IRON": (12, 4),
    "POT-GLASS": (25, 2),
    "TIN-SMALL": (80, 3),
    "TIN-LARGE": (30, 2),
    "SIEVE": (50, 3),
    "SPOON-OAK": (70, 2),
    "KETTLE": (8, 3),
    "GIFT-BOX": (20, 4),
}
NAMES = ["Ada Obi", "Bo Lund", "Chen, Wei", "Dag Moe", 'Eve "Evi" Roth', "Fay O'Neil", "Gus Ek", "Hana Ito", "Íris Sá", "Jan Kos"]


def an_order(number):
    sku = random.choices(list(GOODS), [want for _, want in GOODS.values()])[0]
    return [f"A-{number}", random.choice(NAMES), sku, str(random.choice([1, 1, 1, 2, 2, 3, 5]))]


def later(lines, line, index, most):
    lines.insert(min(len(lines), index + random.randint(1, most)), line)


lines = [an_order(1000 + n) for n in range(300)]
for line in random.sample(lines, 55):  # sent again
    for _ in range(random.choice([1, 1, 1, 2])):
        later(lines, list(line), lines.index(line), random.choice([3, 120]))
for line in random.sample(lines, 22):  # the same number, different contents
    other = list(line)
    if random.random() < 0.5:
        other[3] = str(int(line[3]) + random.randint(1, 4))
    else:
        other[2] = random.choice([sku for sku in GOODS if sku != line[2]])
    later(lines, other, lines.index(line), random.choice([2, 60]))
for bad in (
    ["A-1400", "Bo Lund", "MUG-BLUE", "0"],
    ["A-1401", "Bo Lund", "MUG-BLUE", "-2"],
    ["A-1402", "Gus Ek", "MUG-BLEU", "1"],
    ["A-1403", "Hana Ito", "SIEVE", "two"],
    ["A-1404", "Hana Ito", "SIEVE"],
    ["", "Ada Obi", "KETTLE", "1"],
    ["A-1406", "Chen, Wei", "", "1"],
    ["A-1407", "Dag Moe", "TIN-SMALL", "1", "by hand"],
    ["A-1408", "Jan Kos", "TEA-ASSAM", "99999999999"],
    ["order"],
):
    later(lines, bad, 0, len(lines))

with open("orders.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file, lineterminator="\n").writerows([["order", "customer", "sku", "quantity"], *lines])
with open("stock.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file, lineterminator="\n").writerows([["sku", "units"], *([sku, units] for sku, (units, _) in GOODS.items())])
