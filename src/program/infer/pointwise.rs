//! Elementwise operators and those that keep their input's shape.

use super::{Reason, exactly, is_dtype, is_shape, one, same_float};
use crate::numerics::DType;
use crate::program::{Op, Value, broadcast, normalize_dim};

pub(super) fn infer(op: &Op, x: &[&Value]) -> Reason<Vec<Value>> {
    match op {
        Op::Add {} | Op::Sub {} | Op::Mul {} | Op::Div {} | Op::Maximum {} | Op::Minimum {} => {
            let [a, b] = exactly(x)?;
            let dtype = same_float(x)?;
            one(broadcast(&a.shape, &b.shape).map_err(|e| e.to_string())?, dtype)
        }
        Op::Softmax { dim } | Op::LogSoftmax { dim } | Op::Cumsum { dim } => {
            let [input] = exactly(x)?;
            let dtype = same_float(x)?;
            normalize_dim(*dim, input.shape.len()).map_err(|e| e.to_string())?;
            one(input.shape.clone(), dtype)
        }
        Op::Cast { dtype } => {
            let [input] = exactly(x)?;
            same_float(x)?;
            if !dtype.is_float() {
                return Err(format!("casts to floating point only, not to {dtype}"));
            }
            one(input.shape.clone(), *dtype)
        }
        Op::Dropout { p } => {
            let [input, mask] = exactly(x)?;
            let dtype = same_float(&[input])?;
            is_dtype(mask, DType::U8, "the mask")?;
            is_shape(mask, &input.shape, "the mask")?;
            if !(0.0..1.0).contains(p) {
                return Err(format!("p must be at least 0 and below 1, it is {p}"));
            }
            one(input.shape.clone(), dtype)
        }
        Op::Clamp { min: Some(min), max: Some(max) } if min > max => {
            Err(format!("min {min} is above max {max}"))
        }
        _ => {
            let [input] = exactly(x)?;
            let dtype = same_float(x)?;
            one(input.shape.clone(), dtype)
        }
    }
}
