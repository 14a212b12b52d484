// `ln(eᵃ + eᵇ)` in the type A.
FUNCTION COMPUTE(A) log_add_exp(COMPUTE(A) a, COMPUTE(A) b) {
    const COMPUTE(A) largest = MAX_OR_NAN(a, b);
    // Two equal infinities have no difference.
    if (isnan(largest) || isinf(largest)) return largest;
    return largest + log(1 + exp(a < b ? a - b : b - a));
}
