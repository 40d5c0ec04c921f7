from till import total

CHECKS = [
    (["apple", "bread"], 360),
    (["cheese", "coffee"], 1926),
    (["apple"] * 50, 1800),
]

failed = [(items, want, total(items)) for items, want in CHECKS if total(items) != want]
for items, want, got in failed:
    print(f"FAILED: {len(items)} items should cost {want} cents, not {got}")
print(f"{len(CHECKS) - len(failed)} of {len(CHECKS)} checks passed")
raise SystemExit(bool(failed))
