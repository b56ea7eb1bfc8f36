#!/usr/bin/env python3
"""Writes src/base/rng_normal_table.c: upper quantiles of the standard normal as Q24 integers.

Knot i = 32 * e + j stands for the tail probability p = 2^(e+10) * (1 + j/32) / 2^64, so p doubles
every 32 knots, from 2^-54 (8.3 sigma) to 1/2 (0). The root of Q(z) = p is found by Newton's method
in 60-digit decimal arithmetic, so that the table does not depend on the machine's libm.

    python3 tools/make_normal_table.py > src/base/rng_normal_table.c
"""
from decimal import Decimal, getcontext

getcontext().prec = 60
SUB, FIRST_EXP, LAST_EXP = 32, 10, 63
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def upper_tail(z):
    """Q(z) = 1/2 - phi(z) * (z + z^3/3 + z^5/15 + ...): terms are positive, only the last step cancels."""
    term = total = z
    k = 1
    while term > Decimal(10) ** -55:
        k += 2
        term = term * z * z / k
        total += term
    return Decimal("0.5") - (-z * z / 2).exp() / (2 * PI).sqrt() * total


def quantile_q24(p, guess):
    """Newton from a nearby root; the second derivative is small enough between neighbouring knots."""
    z = guess
    for _ in range(60):
        density = (-z * z / 2).exp() / (2 * PI).sqrt()
        step = (upper_tail(z) - p) / density
        z += step
        if abs(step) < Decimal(10) ** -20:
            return z
    raise ArithmeticError(f"no convergence at p={p}")


def main():
    z, values = Decimal(0), []
    count = (LAST_EXP - FIRST_EXP) * SUB
    for i in range(count, -1, -1):
        e, j = divmod(i, SUB)
        p = Decimal(2) ** (e + FIRST_EXP - 64) * (1 + Decimal(j) / SUB)
        z = quantile_q24(p, z) if i < count else Decimal(0)
        values.append(int((z * (1 << 24)).to_integral_value()))
    values.reverse()
    print("/* Made by tools/make_normal_table.py: upper normal quantiles, 24 fraction bits. Knot\n"
          f" * {SUB} * e + j is at tail probability 2^(e + {FIRST_EXP} - 64) * (1 + j / {SUB}). */")
    print('#include "base/rng_normal_table.h"\n\n/* clang-format off */')
    print("const int32_t RNG_NORMAL_Q24[RNG_NORMAL_KNOTS] = {")
    for i in range(0, len(values), 9):
        print("    " + " ".join(f"{v}," for v in values[i:i + 9]))
    print("};\n/* clang-format on */")


if __name__ == "__main__":
    main()
