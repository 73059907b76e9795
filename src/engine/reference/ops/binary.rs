//! Elementwise operators of several inputs, with broadcasting.

use crate::engine::reference::applied::{Applied, Arguments, Fault, Site};
use crate::engine::reference::elementwise::{map, zip, zip_broadcast, zip3};
use crate::engine::reference::sum::unbroadcast;
use crate::engine::reference::tensor::Floats;
use crate::numerics::{max_nan, min_nan};
use crate::program::Op;

/// Applies a binary operator.
pub(super) fn binary(op: &Op, x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let (a, b) = (x.float(0)?, x.float(1)?);
    let shape = site.shape();
    Ok(match op {
        Op::Add {} => linear(a, b, shape, |a, b| a + b, |g| g),
        Op::Sub {} => linear(a, b, shape, |a, b| a - b, |g| -g),
        Op::Mul {} => general(a, b, shape, |a, b| a * b, |g, _, b| g * b, |g, a, _| g * a),
        Op::Div {} => general(a, b, shape, |a, b| a / b, |g, _, b| g / b, |g, a, b| -g * ((a / b) / b)),
        // At ties half the gradient to each; where one is NaN, neither comparison blocks it.
        Op::Maximum {} => general(
            a,
            b,
            shape,
            max_nan,
            |g, a, b| if a < b { 0.0 } else { shared(g, a, b) },
            |g, a, b| if a > b { 0.0 } else { shared(g, a, b) },
        ),
        Op::Minimum {} => general(
            a,
            b,
            shape,
            min_nan,
            |g, a, b| if a > b { 0.0 } else { shared(g, a, b) },
            |g, a, b| if a < b { 0.0 } else { shared(g, a, b) },
        ),
        _ => return Err("is not a binary operator".to_owned()),
    })
}

fn shared(g: f64, a: f64, b: f64) -> f64 {
    if a == b { g / 2.0 } else { g }
}

/// Addition and subtraction: the gradient needs no values.
fn linear(
    a: &Floats,
    b: &Floats,
    shape: &[usize],
    f: impl Fn(f64, f64) -> f64 + Sync + Send,
    db: impl Fn(f64) -> f64 + Sync + Send + 'static,
) -> Applied {
    let y = zip_broadcast(a, b, shape, |a, b| f(*a, *b));
    let (a_shape, b_shape) = (a.shape().to_vec(), b.shape().to_vec());
    Applied::one(y, move |g, want| {
        vec![
            want.then(0, || unbroadcast(g.clone(), &a_shape, want.terms)),
            want.then(1, || unbroadcast(map(g, &db).into_shared(), &b_shape, want.terms)),
        ]
    })
}

/// Any other: both gradients from cotangent and both values.
fn general(
    a: &Floats,
    b: &Floats,
    shape: &[usize],
    f: impl Fn(f64, f64) -> f64 + Sync + Send,
    da: impl Fn(f64, f64, f64) -> f64 + Sync + Send + 'static,
    db: impl Fn(f64, f64, f64) -> f64 + Sync + Send + 'static,
) -> Applied {
    let y = zip_broadcast(a, b, shape, |a, b| f(*a, *b));
    let (a, b) = (a.clone(), b.clone());
    Applied::one(y, move |g, want| {
        let full = |v: &Floats| {
            if v.shape() == g.shape() {
                v.clone()
            } else {
                crate::engine::reference::elementwise::stretch(v, g.shape()).to_shared()
            }
        };
        let (wide_a, wide_b) = (full(&a), full(&b));
        vec![
            want.then(0, || unbroadcast(zip3(g, &wide_a, &wide_b, &da).into_shared(), a.shape(), want.terms)),
            want.then(1, || unbroadcast(zip3(g, &wide_a, &wide_b, &db).into_shared(), b.shape(), want.terms)),
        ]
    })
}

/// `x · mask / (1 − p)`.
pub(super) fn dropout(x: Arguments<'_>, p: f64) -> Result<Applied, Fault> {
    let (input, mask) = (x.float(0)?, x.integer(1)?);
    let scale = 1.0 / (1.0 - p);
    let factors = mask.mapv(|kept| kept as f64 * scale).into_shared();
    let y = zip(input, &factors, |v, f| v * f);
    Ok(Applied::one(y, move |g, want| vec![want.then(0, || zip(g, &factors, |g, f| g * f)), None]))
}

/// `a` where the condition holds, else `b`.
pub(super) fn select(x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let (condition, a, b) = (x.integer(0)?.clone(), x.float(1)?, x.float(2)?);
    let shape = site.shape();
    let first = zip_broadcast(&condition, a, shape, |c, a| (*c != 0, *a)).into_shared();
    let y = zip_broadcast(&first, b, shape, |(c, a), b| if *c { *a } else { *b });
    let (a_shape, b_shape) = (a.shape().to_vec(), b.shape().to_vec());
    Ok(Applied::one(y, move |g, want| {
        let chosen = |index: usize, side: bool, shape: &[usize]| {
            want.then(index, || {
                let g =
                    zip_broadcast(&condition, g, g.shape(), |c, g| if (*c != 0) == side { *g } else { 0.0 });
                unbroadcast(g.into_shared(), shape, want.terms)
            })
        };
        vec![None, chosen(1, true, &a_shape), chosen(2, false, &b_shape)]
    }))
}

/// `value` where the mask holds, else x.
pub(super) fn masked_fill(x: Arguments<'_>, value: f64) -> Result<Applied, Fault> {
    let (input, mask) = (x.float(0)?, x.integer(1)?.clone());
    let y = zip_broadcast(input, &mask, input.shape(), |v, m| if *m == 0 { *v } else { value });
    Ok(Applied::one(y, move |g, want| {
        let pass = || zip_broadcast(g, &mask, g.shape(), |g, m| if *m == 0 { *g } else { 0.0 });
        vec![want.then(0, pass), None]
    }))
}
