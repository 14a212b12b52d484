//! Special functions.

table! {
    "special.airy_ai", "input", |c| c.input()?.airy_ai()?;
    "special.bessel_j0", "input", |c| c.input()?.bessel_j0()?;
    "special.bessel_j1", "input", |c| c.input()?.bessel_j1()?;
    "special.bessel_y0", "input", |c| c.input()?.bessel_y0()?;
    "special.bessel_y1", "input", |c| c.input()?.bessel_y1()?;
    "special.chebyshev_polynomial_t", "input, n", |c| {
        c.input()?.chebyshev_polynomial_t(c.operand("n")?)?
    };
    "special.chebyshev_polynomial_u", "input, n", |c| {
        c.input()?.chebyshev_polynomial_u(c.operand("n")?)?
    };
    "special.chebyshev_polynomial_v", "input, n", |c| {
        c.input()?.chebyshev_polynomial_v(c.operand("n")?)?
    };
    "special.chebyshev_polynomial_w", "input, n", |c| {
        c.input()?.chebyshev_polynomial_w(c.operand("n")?)?
    };
    "special.entr", "input", |c| c.input()?.entr()?;
    "special.erfcx", "input", |c| c.input()?.erfcx()?;
    "special.hermite_polynomial_h", "input, n", |c| {
        c.input()?.hermite_polynomial_h(c.operand("n")?)?
    };
    "special.hermite_polynomial_he", "input, n", |c| {
        c.input()?.hermite_polynomial_he(c.operand("n")?)?
    };
    "special.i0e", "input", |c| c.input()?.i0e()?;
    "special.i1", "input", |c| c.input()?.i1()?;
    "special.i1e", "input", |c| c.input()?.i1e()?;
    "special.laguerre_polynomial_l", "input, n", |c| {
        c.input()?.laguerre_polynomial_l(c.operand("n")?)?
    };
    "special.legendre_polynomial_p", "input, n", |c| {
        c.input()?.legendre_polynomial_p(c.operand("n")?)?
    };
    "special.log_ndtr", "input", |c| c.input()?.log_ndtr()?;
    "special.modified_bessel_i0", "input", |c| c.input()?.modified_bessel_i0()?;
    "special.modified_bessel_i1", "input", |c| c.input()?.modified_bessel_i1()?;
    "special.modified_bessel_k0", "input", |c| c.input()?.modified_bessel_k0()?;
    "special.modified_bessel_k1", "input", |c| c.input()?.modified_bessel_k1()?;
    "special.ndtr", "input", |c| c.input()?.ndtr()?;
    "special.ndtri", "input", |c| c.input()?.ndtri()?;
    // PyTorch's tests give the tensor first.
    "special.polygamma", "input, n", |c| c.input()?.polygamma(c.int("n")?)?;
    "special.scaled_modified_bessel_k0", "input", |c| c.input()?.scaled_modified_bessel_k0()?;
    "special.scaled_modified_bessel_k1", "input", |c| c.input()?.scaled_modified_bessel_k1()?;
    "special.shifted_chebyshev_polynomial_t", "input, n", |c| {
        c.input()?.shifted_chebyshev_polynomial_t(c.operand("n")?)?
    };
    "special.shifted_chebyshev_polynomial_u", "input, n", |c| {
        c.input()?.shifted_chebyshev_polynomial_u(c.operand("n")?)?
    };
    "special.shifted_chebyshev_polynomial_v", "input, n", |c| {
        c.input()?.shifted_chebyshev_polynomial_v(c.operand("n")?)?
    };
    "special.shifted_chebyshev_polynomial_w", "input, n", |c| {
        c.input()?.shifted_chebyshev_polynomial_w(c.operand("n")?)?
    };
    "special.spherical_bessel_j0", "input", |c| c.input()?.spherical_bessel_j0()?;
    "special.xlog1py", "input, other", |c| c.input()?.xlog1py(c.operand("other")?)?;
    "special.zeta", "input, other", |c| c.input()?.zeta(c.operand("other")?)?;
}
