//! How much wider a band must be for a small tensor.
//!
//! The floor of a quantity is estimated from M noisy replicas, each with ν effective
//! degrees of freedom; the deviation of a correct candidate is one more such draw. The
//! ratio of its square to their mean square follows the F distribution with (ν, M·ν)
//! degrees of freedom. For a large tensor its far quantile is near 1 and any multiple of
//! 3 is generous; for a scalar it is not: with 16 replicas one run in ten thousand exceeds
//! 5.2 floors by chance.

/// Factor, at least 1, for the multiples of a band: the root of the F quantile over 3.
///
/// `degrees_of_freedom`: effective number of independent elements of the deviation (at
/// least 1 is used). `tail`: chance of a false alarm for this one quantity, such as
/// `alpha_run` over the number of quantities. Arguments outside their ranges (NaN, a tail
/// that is no share, no replicas) give infinity: nothing can be said, nothing may pass as
/// known.
#[must_use]
pub fn widening(degrees_of_freedom: f64, replicas: u32, tail: f64) -> f64 {
    if degrees_of_freedom.is_nan() {
        return f64::INFINITY;
    }
    // From a thousand on the quantile is below 3² for every tail above 1e-300.
    let nu = degrees_of_freedom.clamp(1.0, 1e4);
    let factor = f_quantile(tail, nu, nu * f64::from(replicas)).sqrt() / 3.0;
    if factor > 1.0 || factor.is_nan() { factor } else { 1.0 }
}

/// The value that an F-distributed ratio with (`d1`, `d2`) degrees of freedom exceeds with
/// probability `tail`. Infinite for arguments outside their ranges.
#[must_use]
pub fn f_quantile(tail: f64, d1: f64, d2: f64) -> f64 {
    let positive = |x: f64| x > 0.0 && x.is_finite();
    if !(tail > 0.0 && tail < 1.0 && positive(d1) && positive(d2)) {
        return f64::INFINITY;
    }
    // P(F > f) = I_x(d2/2, d1/2) with x = d2 / (d2 + d1·f). Bisection on ln f.
    let survival = |ln_f: f64| {
        let f = ln_f.exp();
        incomplete_beta(d2 / (d2 + d1 * f), d2 / 2.0, d1 / 2.0)
    };
    let (mut low, mut high) = (-700.0, 700.0);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if survival(middle) > tail {
            low = middle;
        } else {
            high = middle;
        }
        if high - low <= 1e-13 * (1.0 + middle.abs()) {
            break;
        }
    }
    f64::midpoint(low, high).exp()
}

/// Regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz's
/// algorithm) on the side where that converges quickly.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    front * beta_fraction(x, a, b)
}

fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let guard = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for m in 1..100_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / guard(1.0 + even * d);
        c = guard(1.0 + even / c);
        value *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / guard(1.0 + odd * d);
        c = guard(1.0 + odd / c);
        value *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// ln Γ(x) for x > 0: recurrence up to 10, then Stirling's series.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < 10.0 {
        product *= x;
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    // B_2k / (2k(2k−1)), k = 1..7.
    let coefficients = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
        1.0 / 156.0,
    ];
    let series = coefficients.iter().rev().fold(0.0, |sum, c| sum * y + c) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - f64::ln(product)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_gamma_function_has_known_values() {
        for (x, expected) in
            [(1.0, 0.0), (2.0, 0.0), (0.5, 0.572_364_942_924_700_1), (10.5, 13.940_625_219_403_763)]
        {
            assert!((ln_gamma(x) - expected).abs() < 1e-13, "{x}: {}", ln_gamma(x));
        }
        assert!((ln_gamma(101.0) - 363.739_375_555_563_5).abs() < 1e-10);
    }

    #[test]
    fn quantiles_agree_with_closed_forms() {
        // F(2, d): P(F > f) = (1 + 2f/d)^(-d/2).
        for (d, tail) in [(2.0, 0.05), (10.0, 1e-4), (64.0, 1e-6)] {
            let expected = d / 2.0 * (f64::powf(tail, -2.0 / d) - 1.0);
            assert!((f_quantile(tail, 2.0, d) / expected - 1.0).abs() < 1e-10);
        }
        // F(1, 1) is the square of a Cauchy variable: f = tan²(π/2·(1 − tail)).
        let expected = (std::f64::consts::FRAC_PI_2 * 0.9).tan().powi(2);
        assert!((f_quantile(0.1, 1.0, 1.0) / expected - 1.0).abs() < 1e-10);
        // The median of F(d, d) is 1.
        assert!((f_quantile(0.5, 7.0, 7.0) - 1.0).abs() < 1e-10);
    }

    #[test]
    fn root_quantiles_agree_with_the_published_table() {
        let table = [(4, [15.6, 3.5, 2.2, 1.32]), (16, [5.2, 2.6, 2.0, 1.28]), (32, [4.5, 2.5, 1.9, 1.28])];
        for (replicas, row) in table {
            for (nu, expected) in [1.0, 4.0, 10.0, 100.0].into_iter().zip(row) {
                let root = f_quantile(1e-4, nu, nu * f64::from(replicas)).sqrt();
                assert!((root / expected - 1.0).abs() < 0.03, "M {replicas}, nu {nu}: {root} for {expected}");
            }
        }
    }

    #[test]
    fn large_tensors_are_not_widened_and_scalars_are() {
        assert_eq!(widening(1e9, 16, 1e-6), 1.0);
        assert_eq!(widening(100.0, 16, 1e-4), 1.0);
        assert!((widening(1.0, 16, 1e-4) - 5.2 / 3.0).abs() < 0.03);
        assert!(widening(1.0, 16, 1e-6) > widening(1.0, 16, 1e-4));
        assert_eq!(widening(0.3, 16, 1e-4), widening(1.0, 16, 1e-4));
    }

    #[test]
    fn what_cannot_be_known_is_infinite() {
        for value in [
            widening(f64::NAN, 16, 1e-4),
            widening(1.0, 0, 1e-4),
            widening(1.0, 16, 0.0),
            widening(1.0, 16, f64::NAN),
            widening(1.0, 16, 1.5),
        ] {
            assert_eq!(value, f64::INFINITY);
        }
    }
}
