//! Multilinear operators, and those that select.
//!
//! A result that is a sum of products of inputs has as its sum of squares the same operator
//! on the squares of the inputs; a gradient likewise, with the squares of the incoming
//! gradients. Operators that select elements are linear in what they select: there the
//! inputs stay and the incoming gradients alone are squared.

use super::evaluate::exact;
use super::spread::{Site, Spread, Values};
use crate::engine::EngineError;
use crate::numerics::Role;
use crate::program::Op;

/// The operator whose result on squares is the sum of the squares of the terms.
fn squared(op: &Op) -> Option<Op> {
    use Op::*;
    Some(match op {
        Sum { .. }
        | Mean { .. }
        | Cumsum { .. }
        | ScatterAdd { .. }
        | IndexPut { .. }
        | AvgPool2d { .. }
        | AdaptiveAvgPool2d { .. }
        | UpsampleBilinear2d { .. }
        | Add {}
        | Sub {}
        | Mul {}
        | Div {}
        | Dropout { .. } => op.clone(),
        Addmm { beta, alpha } => Addmm { beta: beta * beta, alpha: alpha * alpha },
        Baddbmm { beta, alpha } => Baddbmm { beta: beta * beta, alpha: alpha * alpha },
        product if matches!(product.role(), Role::Matmul | Role::Conv) => product.clone(),
        _ => return None,
    })
}

/// Averages weigh each term with 1/n, and the squares should be weighed with 1/n².
fn share(site: &Site<'_>) -> f64 {
    let terms = site.op.forward_terms(site.types, site.outputs) as f64;
    match site.op {
        Op::Mean { .. } | Op::AvgPool2d { .. } | Op::AdaptiveAvgPool2d { .. } => 1.0 / terms,
        _ => 1.0,
    }
}

/// Interpolation: the weights are differences of positions that reach the size of the input.
fn position(site: &Site<'_>) -> f64 {
    match site.op {
        Op::UpsampleBilinear2d { .. } => {
            1.0 + site.shape(0).iter().rev().take(2).copied().max().unwrap_or(1) as f64
        }
        _ => 1.0,
    }
}

pub(super) fn forward(site: &Site<'_>) -> Result<Spread, EngineError> {
    if let Op::UpsampleBilinear2d { .. } = site.op {
        // An error of a weight weighs a neighbour that the exact weight may leave out.
        let term = largest(site.input(0)) * position(site);
        return Ok(Spread::terms(vec![term; site.result(0).len()]));
    }
    let biased = matches!(site.op, Op::Addmm { .. } | Op::Baddbmm { .. })
        || matches!(site.op.role(), Role::Matmul | Role::Conv) && site.inputs.len() > 2;
    let summed = biased || site.op.forward_terms(site.types, site.outputs) > 1;
    let Some(op) = squared(site.op).filter(|_| summed) else { return Ok(Spread::default()) };
    let squares: Vec<Values> = site.inputs.iter().map(Values::squares).collect();
    let (results, _) = exact(&op, &squares, &[])?;
    Ok(Spread::terms(roots(results.first(), share(site))))
}

pub(super) fn backward(site: &Site<'_>, index: usize, gradient: &Values) -> Result<Spread, EngineError> {
    if site.op.backward_terms(index, site.types, site.outputs) <= 1
        && !matches!(
            site.op,
            Op::Embedding {}
                | Op::IndexSelect { .. }
                | Op::Gather { .. }
                | Op::Div {}
                | Op::UpsampleBilinear2d { .. }
        )
    {
        return Ok(Spread::default());
    }
    let incoming: Vec<Option<Values>> =
        site.incoming.iter().map(|g| g.as_ref().map(Values::squares)).collect();
    let op = squared(site.op);
    let inputs: Vec<Values> = match &op {
        Some(_) => site.inputs.iter().map(Values::squares).collect(),
        None => site.inputs.to_vec(),
    };
    let (_, gradients) = exact(op.as_ref().unwrap_or(site.op), &inputs, &incoming)?;
    let found = gradients.into_iter().nth(index).flatten();
    let mut spread = Spread::terms(roots(found.as_ref(), share(site)));
    if let Op::UpsampleBilinear2d { .. } = site.op {
        let neighbour = largest(site.cotangent());
        spread.terms.iter_mut().for_each(|term| *term = (*term + neighbour) * position(site));
    }
    debug_assert_eq!(spread.terms.len(), gradient.data.len());
    Ok(spread)
}

/// Largest magnitude.
fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, super::lanes::larger)
}

/// Roots of sums of squares; a difference hands on negative squares.
fn roots(squares: Option<&Values>, share: f64) -> Vec<f64> {
    squares.map_or_else(Vec::new, |v| v.data.iter().map(|s| (s.abs() * share).sqrt()).collect())
}
