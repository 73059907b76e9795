//! What the weights of a program are drawn as.

use rayon::prelude::*;

use crate::batch::Stream;
use crate::program::{Op, Program, ProgramInput};

/// Elements that one task draws.
const BLOCK: usize = 1 << 12;

/// Mean and standard deviation of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub mean: f64,
    pub deviation: f64,
}

impl Spread {
    const BIAS: Self = Self { mean: 0.0, deviation: 0.1 };
    /// Bounded draws (|z| < 4.9): every value stays above 0.38.
    const SCALE: Self = Self { mean: 1.0, deviation: 0.125 };

    fn fan_in(terms: usize) -> Self {
        Self { mean: 0.0, deviation: 1.0 / (terms.max(1) as f64).sqrt() }
    }

    /// The spread that suits the first use of a parameter or buffer.
    pub fn of(program: &Program, input: &ProgramInput) -> Self {
        let shape = program.value(input.value).shape.as_slice();
        let first_use = program.nodes.iter().find_map(|node| {
            let position = node.inputs.iter().position(|id| *id == input.value)?;
            Some((&node.op, position))
        });
        let terms = |from: usize| shape.iter().skip(from).product::<usize>();
        let Some((op, position)) = first_use else { return Self::BIAS };
        match (op, position) {
            (Op::Linear {} | Op::Conv1d { .. } | Op::Conv2d { .. }, 1) => Self::fan_in(terms(1)),
            (Op::Addmm { .. } | Op::Baddbmm { .. }, 2) | (Op::Mm {} | Op::Bmm {} | Op::Matmul {}, 1) => {
                Self::fan_in(shape.iter().rev().nth(1).copied().unwrap_or(1))
            }
            // Weights and running variances of normalisation.
            (Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::GroupNorm { .. }, 1)
            | (Op::BatchNorm { .. }, 1 | 4) => Self::SCALE,
            // Biases of everything, running means.
            (
                Op::Linear {}
                | Op::Conv1d { .. }
                | Op::Conv2d { .. }
                | Op::LayerNorm { .. }
                | Op::GroupNorm { .. },
                2,
            )
            | (Op::Addmm { .. } | Op::Baddbmm { .. }, 0)
            | (Op::BatchNorm { .. }, 2 | 3) => Self::BIAS,
            // Tables: rows of about unit length, whether looked up or used as a tied head.
            (Op::Embedding {} | Op::Slice { .. }, 0) => Self::fan_in(shape.last().copied().unwrap_or(1)),
            // Added or joined as they are: class tokens, position embeddings.
            _ => Self { mean: 0.0, deviation: 0.5 },
        }
    }

    /// f32 bytes of elements `first .. first + count`, in parallel.
    #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the purpose")]
    pub fn draw(self, stream: &Stream, first: usize, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count * 4];
        bytes.par_chunks_mut(BLOCK * 4).enumerate().for_each(|(block, bytes)| {
            for (i, slot) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let index = (first + block * BLOCK + i) as u64;
                *slot = ((self.mean + self.deviation * stream.normal(index)) as f32).to_le_bytes();
            }
        });
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{BuildOptions, Config, build};

    #[test]
    fn every_use_gets_its_spread() {
        let config = Config::parse(
            br#"{"model_type": "gpt2", "vocab_size": 97, "n_positions": 8, "n_embd": 16, "n_layer": 1,
                "n_head": 2}"#,
        );
        let program = build(&config.unwrap(), &BuildOptions::default()).unwrap();
        let spread = |key: &str| {
            let input = program.inputs.iter().find(|i| i.name == format!("transformer.{key}")).unwrap();
            Spread::of(&program, input)
        };
        assert_eq!(spread("wte.weight"), Spread { mean: 0.0, deviation: 0.25 });
        assert_eq!(spread("h.0.attn.c_attn.weight"), Spread { mean: 0.0, deviation: 0.25 }, "[in, out]");
        assert_eq!(spread("h.0.mlp.c_proj.weight"), Spread { mean: 0.0, deviation: 0.125 }, "64 inputs");
        assert_eq!(spread("h.0.mlp.c_proj.bias"), Spread::BIAS);
        assert_eq!(spread("ln_f.weight"), Spread::SCALE);
        assert_eq!(spread("ln_f.bias"), Spread::BIAS);
    }

    #[test]
    fn pieces_join_to_the_whole() {
        let (stream, spread) = (Stream::new(1, "w"), Spread::SCALE);
        let whole = spread.draw(&stream, 0, 10_000);
        let mut pieces = spread.draw(&stream, 0, 4_500);
        pieces.extend(spread.draw(&stream, 4_500, 5_500));
        assert_eq!(whole, pieces);
    }
}
