import csv


def prices(path="prices.csv"):
    with open(path, encoding="utf-8") as file:
        return {row["item"]: int(row["cents"]) for row in csv.DictReader(file)}


def total(items):
    """What the items cost, in cents."""
    cost = prices()
    cents = sum(cost[item] for item in items)
    if cents > 2000:
        cents -= cents // 10
    return cents
