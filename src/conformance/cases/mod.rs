//! The table, one file a family.

mod conv;
mod index;
mod linalg;
mod loss;
mod norm;
mod pointwise;
mod reduce;
mod shape;

use super::Case;

/// Every case, in the order of [`OpKind::ALL`](crate::program::OpKind::ALL) by family.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        linalg::cases(),
        conv::cases(),
        norm::cases(),
        pointwise::cases(),
        reduce::cases(),
        index::cases(),
        shape::cases(),
        loss::cases(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::program::OpKind;

    #[test]
    fn every_operator_has_a_case() {
        let covered: BTreeSet<OpKind> = cases().iter().map(|case| case.op.kind()).collect();
        let missing: Vec<_> = OpKind::ALL.iter().filter(|kind| !covered.contains(kind)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn names_are_unique_and_programs_type_check() {
        let all = cases();
        let names: BTreeSet<&str> = all.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for case in &all {
            let program = case.program().unwrap_or_else(|e| panic!("{}: {e}", case.name));
            let inputs = case.host_inputs(1).unwrap();
            assert_eq!(inputs.len(), program.inputs.len());
            for (tensor, input) in inputs.iter().zip(&program.inputs) {
                assert_eq!(tensor.shape(), program.value(input.value).shape, "{}", case.name);
            }
        }
    }
}
