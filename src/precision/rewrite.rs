//! [`rewrite`]: the same program in other dtypes.

use std::collections::HashMap;

use super::Precision;
use crate::numerics::{DType, Role};
use crate::program::{Node, Op, Program, ProgramError, Value, ValueId};

/// A program could not be rewritten.
#[derive(Debug, thiserror::Error)]
#[error("the program cannot be held in {precision}: {source}; choose another precision")]
pub struct PrecisionError {
    /// The precision asked for.
    pub precision: Precision,
    /// What does not fit.
    pub source: ProgramError,
}

/// `program` as `precision` holds it.
///
/// Values keep their ids; inputs, captures, outputs and the order of nodes stay. A `Cast` is
/// inserted before the first node that needs a value in another dtype and serves all that
/// follow (as autocast keeps the casts of weights). Integer values and masks stay. For a
/// nominally f32 program, `F32` and `Tf32` give the program itself.
///
/// # Errors
/// If an operator does not accept the dtypes that the policy gives it.
pub fn rewrite(program: &Program, precision: Precision) -> Result<Program, PrecisionError> {
    let mut rewriter = Rewriter {
        precision,
        program: Program { nodes: Vec::with_capacity(program.nodes.len()), ..program.clone() },
        casts: HashMap::new(),
    };
    for input in &program.inputs {
        rewriter.hold(input.value, precision.weights());
    }
    for node in &program.nodes {
        rewriter.node(node);
    }
    rewriter.program.validate().map_err(|source| PrecisionError { precision, source })?;
    Ok(rewriter.program)
}

struct Rewriter {
    precision: Precision,
    program: Program,
    /// The copy of a value in a dtype.
    casts: HashMap<(ValueId, DType), ValueId>,
}

impl Rewriter {
    fn node(&mut self, node: &Node) {
        let mut node = node.clone();
        // A cast of the base program (nominally to f32) is a change of dtype that the author
        // asked for; under a pure precision there is only one float dtype.
        if let Op::Cast { dtype } = &mut node.op
            && !self.precision.is_mixed()
        {
            *dtype = self.precision.activations();
        }
        let dtype = self.dtype_of(&node);
        if !matches!(node.op, Op::Cast { .. }) {
            for input in &mut node.inputs {
                *input = self.cast(*input, dtype, &node.path);
            }
        }
        for output in &node.outputs {
            self.hold(*output, dtype);
        }
        self.program.nodes.push(node);
    }

    /// The dtype in which a node runs, that is, of its floating-point arguments and results.
    fn dtype_of(&self, node: &Node) -> DType {
        let p = self.precision;
        if let Op::Cast { dtype } = node.op {
            return dtype;
        }
        if !p.is_mixed() {
            return p.activations();
        }
        match node.op.role() {
            Role::Matmul | Role::Conv | Role::Attention => p.matmul(),
            Role::Normalisation => p.normalisation(),
            Role::Softmax => p.softmax(),
            Role::Loss | Role::Metric => p.loss(),
            Role::Reduction if !follows_arguments(&node.op) => p.reductions(),
            _ if runs_in_f32(&node.op) => p.reductions(),
            // Type promotion: the widest dtype among the arguments.
            Role::Reduction | Role::Exact | Role::Elementwise => node
                .inputs
                .iter()
                .map(|id| self.program.value(*id).dtype)
                .filter(|dtype| dtype.is_float())
                .max_by_key(|dtype| dtype.precision_bits())
                .unwrap_or_else(|| p.activations()),
        }
    }

    /// The value in `dtype`; itself if it is an integer or already so.
    fn cast(&mut self, id: ValueId, dtype: DType, path: &str) -> ValueId {
        let value = self.program.value(id).clone();
        if !value.dtype.is_float() || value.dtype == dtype {
            return id;
        }
        if let Some(copy) = self.casts.get(&(id, dtype)) {
            return *copy;
        }
        let copy = ValueId(u32::try_from(self.program.values.len()).unwrap_or(u32::MAX));
        self.program.values.push(Value { dtype, ..value });
        self.program.nodes.push(Node {
            op: Op::Cast { dtype },
            inputs: vec![id],
            outputs: vec![copy],
            path: path.to_owned(),
            source: None,
        });
        self.casts.insert((id, dtype), copy);
        copy
    }

    /// Declares what a floating-point value is held in.
    fn hold(&mut self, id: ValueId, dtype: DType) {
        if let Some(value) = self.program.values.get_mut(id.index())
            && value.dtype.is_float()
        {
            value.dtype = dtype;
        }
    }
}

/// Reductions that autocast leaves in the dtype of their arguments.
const fn follows_arguments(op: &Op) -> bool {
    matches!(
        op,
        Op::Mean { .. }
            | Op::Var { .. }
            | Op::AvgPool2d { .. }
            | Op::AdaptiveAvgPool2d { .. }
            | Op::ScatterAdd { .. }
            | Op::IndexPut { .. }
    )
}

/// Elementwise operators on autocast's list of those that need f32.
const fn runs_in_f32(op: &Op) -> bool {
    matches!(
        op,
        Op::Exp {}
            | Op::Log {}
            | Op::PowScalar { .. }
            | Op::Reciprocal {}
            | Op::Rsqrt {}
            | Op::Softplus { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{BuildOptions, Config, Mode, build};
    use crate::program::InputKind;

    const CONFIGS: [&str; 4] = [
        r#"{"model_type": "mlp", "layer_sizes": [12, 16, 5]}"#,
        r#"{"model_type": "vit", "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2,
            "intermediate_size": 40, "image_size": 12, "patch_size": 4, "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1}"#,
        r#"{"model_type": "gpt2", "vocab_size": 97, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}"#,
        r#"{"model_type": "resnet", "hidden_sizes": [8, 16], "depths": [1, 1], "embedding_size": 8,
            "layer_type": "basic", "image_size": 32}"#,
    ];

    fn programs() -> impl Iterator<Item = Program> {
        CONFIGS.into_iter().flat_map(|text| {
            [Mode::Eval, Mode::Train].map(|mode| {
                let options = BuildOptions { batch: 2, mode, ..BuildOptions::default() };
                build(&Config::parse(text.as_bytes()).unwrap(), &options).unwrap()
            })
        })
    }

    #[test]
    fn every_family_is_valid_in_every_precision_and_keeps_its_names() {
        for base in programs() {
            for precision in Precision::ALL {
                let p = rewrite(&base, precision).unwrap_or_else(|e| panic!("{}: {e}", base.name));
                assert_eq!(p.captures, base.captures);
                assert_eq!(p.outputs, base.outputs);
                assert_eq!(p.inputs, base.inputs);
                let ops = |p: &Program| -> Vec<_> {
                    p.nodes
                        .iter()
                        .filter(|n| !matches!(n.op, Op::Cast { .. }))
                        .map(|n| n.op.clone())
                        .collect()
                };
                assert_eq!(ops(&p), ops(&base));
                assert_eq!(p.nodes.len() > base.nodes.len(), precision.is_mixed());
                assert_eq!(p.value(p.outputs.loss.unwrap()).dtype, precision.loss());
                for input in p.inputs_of(InputKind::Parameter) {
                    assert_eq!(p.value(input.value).dtype, precision.weights());
                }
                for (old, new) in base.values.iter().zip(&p.values) {
                    assert_eq!(
                        (old.shape.clone(), old.dtype.is_float()),
                        (new.shape.clone(), new.dtype.is_float())
                    );
                }
            }
        }
    }

    #[test]
    fn f32_and_tf32_leave_the_program_as_it_is() {
        for base in programs() {
            assert_eq!(rewrite(&base, Precision::F32).unwrap(), base);
            assert_eq!(rewrite(&base, Precision::Tf32).unwrap(), base);
        }
    }

    #[test]
    fn rewriting_twice_changes_nothing_more() {
        for base in programs() {
            for precision in Precision::ALL {
                let once = rewrite(&base, precision).unwrap();
                assert_eq!(rewrite(&once, precision).unwrap(), once, "{} in {precision}", base.name);
            }
        }
    }

    #[test]
    fn pure_precisions_hold_every_float_in_one_dtype() {
        for base in programs() {
            for precision in [Precision::F64, Precision::F16, Precision::Bf16] {
                let p = rewrite(&base, precision).unwrap();
                assert!(p.values.iter().all(|v| !v.dtype.is_float() || v.dtype == precision.weights()));
            }
        }
    }

    #[test]
    fn mixed_precision_runs_each_role_where_autocast_does() {
        for base in programs() {
            let p = rewrite(&base, Precision::AmpBf16).unwrap();
            for node in p.nodes.iter().filter(|n| !matches!(n.op, Op::Cast { .. })) {
                let dtype = p.value(node.outputs[0]).dtype;
                match node.op.role() {
                    Role::Matmul | Role::Conv | Role::Attention => assert_eq!(dtype, DType::BF16),
                    Role::Normalisation | Role::Softmax | Role::Loss => assert_eq!(dtype, DType::F32),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn a_weight_that_is_used_twice_is_cast_once() {
        let text = CONFIGS[2];
        let base = build(&Config::parse(text.as_bytes()).unwrap(), &BuildOptions::default()).unwrap();
        let p = rewrite(&base, Precision::AmpF16).unwrap();
        let casts: Vec<_> = p
            .nodes
            .iter()
            .filter(|n| matches!(n.op, Op::Cast { .. }))
            .map(|n| (n.inputs.clone(), n.op.clone()))
            .collect();
        for (i, cast) in casts.iter().enumerate() {
            assert!(!casts[..i].contains(cast), "{cast:?} twice");
        }
    }
}
