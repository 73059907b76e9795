//! What is to be tried, checked before anything runs.

use serde::{Deserialize, Serialize};

use crate::cli::args::OpsArgs;
use crate::cli::failure::{Failure, request as failure};
use crate::cli::targets;
use crate::conformance::Trial;
use crate::conformance::sweep::{self, Extent, FLOATS};
use crate::engine::candle::CandleEngine;
use crate::numerics::DType;
use crate::precision::Precision;
use crate::program::OpKind;
use crate::run::{EngineKind, Target};

/// The trials of one target: travels to its process as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Target, with its precision (which only says whether TF32 is allowed).
    pub target: Target,
    /// As it was named.
    pub name: String,
    /// Small sizes only.
    pub quick: bool,
    /// Operators by name; all if empty.
    pub operators: Vec<String>,
    /// Dtypes; all if empty.
    pub dtypes: Vec<DType>,
    /// Trials by name; all if empty.
    pub cases: Vec<String>,
    /// Seed of all values.
    pub seed: u64,
    /// Policy file; the built-in one without it.
    pub policy: Option<std::path::PathBuf>,
    /// Trials that an earlier process has done (or died in).
    #[serde(default)]
    pub done: usize,
}

/// One request a target.
pub fn resolve(args: &OpsArgs) -> Result<Vec<Request>, Failure> {
    for name in &args.operators {
        known(name)?;
    }
    let mut dtypes = Vec::new();
    for name in &args.dtypes {
        let dtype: DType = name.parse().map_err(failure)?;
        if !dtype.is_float() {
            return Err(Failure::Request(format!("--dtype {name}: name f64, f32, f16 or bf16")));
        }
        dtypes.push(dtype);
    }
    let targets = targets::resolve(&args.targets)?;
    let named = |position: usize| args.targets.get(position).map(String::as_str);
    let mut requests = Vec::new();
    for (position, target) in targets.into_iter().enumerate() {
        let explicit = named(position).is_some_and(|name| name.contains('@'));
        let mut dtypes = dtypes.clone();
        if explicit {
            dtypes = restricted(&target, &dtypes)?;
        }
        let tf32 = target.precision == Precision::Tf32;
        let place = format!("{}:{}{}", target.engine.name(), target.device, if tf32 { "@tf32" } else { "" });
        requests.push(Request {
            target,
            name: place,
            quick: args.quick,
            operators: args.operators.clone(),
            dtypes,
            cases: args.cases.clone(),
            seed: args.seed,
            policy: args.policy.clone(),
            done: 0,
        });
    }
    if let Some(request) = requests.first() {
        for name in &args.cases {
            exists(name, request)?;
        }
    }
    Ok(requests)
}

/// A target that names a precision is tried in its dtype alone.
fn restricted(target: &Target, dtypes: &[DType]) -> Result<Vec<DType>, Failure> {
    let dtype = match target.precision {
        Precision::F64 => DType::F64,
        Precision::F32 | Precision::Tf32 => DType::F32,
        Precision::F16 => DType::F16,
        Precision::Bf16 => DType::BF16,
        _ => {
            return Err(Failure::Request(format!(
                "target `{target}`: an operator is tried in one dtype; name {}:{} and choose with --dtype",
                target.engine.name(),
                target.device
            )));
        }
    };
    if dtypes.is_empty() || dtypes.contains(&dtype) {
        return Ok(vec![dtype]);
    }
    Err(Failure::Request(format!(
        "target `{target}` is tried in {dtype}; leave out --dtype or the precision"
    )))
}

fn known(name: &str) -> Result<(), Failure> {
    if OpKind::ALL.iter().any(|kind| kind.name() == name) {
        return Ok(());
    }
    let near = nearest(name, OpKind::ALL.iter().map(|kind| kind.name()));
    let hint = near.map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default();
    Err(Failure::Request(format!("unknown operator `{name}`{hint}; docs/operators.md lists them all")))
}

fn nearest<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = all.map(|other| (other, strsim::damerau_levenshtein(other, name)));
    near.filter(|(other, d)| *d <= 3 || other.contains(name)).min_by_key(|(_, d)| *d).map(|(other, _)| other)
}

fn exists(name: &str, request: &Request) -> Result<(), Failure> {
    let everything =
        Request { cases: Vec::new(), operators: Vec::new(), dtypes: Vec::new(), ..request.clone() };
    let all = everything.trials();
    if all.iter().any(|trial| trial.to_string() == name) {
        return Ok(());
    }
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    let near = names.iter().map(|n| (n, strsim::damerau_levenshtein(n, name))).min_by_key(|(_, d)| *d);
    let hint = near.map(|(n, _)| format!("; the nearest is `{n}`")).unwrap_or_default();
    Err(Failure::Request(format!("there is no case `{name}` for {}{hint}", request.name)))
}

impl Request {
    /// Everything that is to be tried, in order.
    pub fn trials(&self) -> Vec<Trial> {
        let named = !self.cases.is_empty();
        let extent = if self.quick && !named { Extent::Quick } else { Extent::Full };
        let mut trials = sweep::trials(extent);
        if self.target.engine == EngineKind::Candle {
            trials.extend(sweep::with_kernels(&trials, "fused", &CandleEngine::fused_operators()));
        }
        trials.retain(|trial| {
            let operator = trial.case.op.name();
            (self.operators.is_empty() || self.operators.iter().any(|name| name == operator))
                && (self.dtypes.is_empty() || self.dtypes.contains(&trial.dtype))
                && (!named || self.cases.contains(&trial.to_string()))
        });
        debug_assert!(trials.iter().all(|trial| FLOATS.contains(&trial.dtype)));
        trials
    }
}
