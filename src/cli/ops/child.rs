//! The process of one target: tries what it is asked to, and says so line by line.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::bands::{PolicyBands, formats};
use super::request::Request;
use crate::cli::check;
use crate::cli::failure::{Failure, request as failure};
use crate::conformance::floor::Rounding;
use crate::conformance::{Judge, Outcome, Trial, attempt};
use crate::engine::candle::{CandleEngine, KernelSet};
use crate::engine::{Engine, EngineError, EngineInfo};
use crate::precision::Precision;
use crate::run::{EngineSettings, EngineVisitor, with_engine};
use crate::verdict::exit;

/// One line of the child's output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// The engine is open.
    Open {
        /// Who it is.
        engine: EngineInfo,
    },
    /// The device is not there.
    Absent {
        /// Why.
        reason: String,
    },
    /// A trial begins; should no outcome follow, it ended the process.
    Begin {
        /// Position among the request's trials.
        trial: usize,
    },
    /// A trial is done.
    Done {
        /// What came of it.
        outcome: Outcome,
    },
    /// Everything is done.
    End,
}

/// Runs a request (as JSON) in this process.
pub fn serve(request: &str) -> Result<u8, Failure> {
    let request: Request = serde_json::from_str(request).map_err(failure)?;
    let served = with_engine(&request.target, EngineSettings::default(), Tries { request: &request });
    match served {
        Ok(result) => result,
        Err(EngineError::Absent { reason, .. }) => {
            say(&Line::Absent { reason })?;
            Ok(exit::INCOMPLETE)
        }
        Err(error) => Err(failure(error)),
    }
}

fn say(line: &Line) -> Result<(), Failure> {
    let broken = |error: io::Error| Failure::Request(format!("nobody reads the results: {error}"));
    let text = serde_json::to_string(line).map_err(failure)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(broken)
}

struct Tries<'a> {
    request: &'a Request,
}

impl EngineVisitor for Tries<'_> {
    type Output = Result<u8, Failure>;

    fn visit<E: Engine>(self, engine: E) -> Self::Output {
        let request = self.request;
        let policy = check::policy(request.policy.as_deref())?;
        let trials = request.trials();
        let formats = formats(&policy, request.target.precision == Precision::Tf32);
        let bands = PolicyBands { policy: &policy, tensors: trials.len() * 3 };
        let rounding = Rounding { model: policy.model, formats: &formats };
        let judge = Judge { rounding, bands: &bands, seed: request.seed };
        // Only candle has a second kernel set.
        let fused =
            CandleEngine::with_kernels(&request.target.device, KernelSet::Fused).map(CandleEngine::candid);
        say(&Line::Open { engine: engine.info() })?;
        for (position, trial) in trials.iter().enumerate().skip(request.done) {
            say(&Line::Begin { trial: position })?;
            let outcome = match (trial.kernels, &fused) {
                (Some(_), Ok(fused)) => attempt(fused, trial, &judge),
                (Some(_), Err(error)) => Outcome { reason: Some(error.to_string()), ..Outcome::new(trial) },
                (None, _) => attempt(&engine, trial, &judge),
            };
            say(&Line::Done { outcome })?;
        }
        say(&Line::End)?;
        Ok(exit::PARITY)
    }
}

/// The outcome of a trial that ended its process.
pub fn died(trial: &Trial, how: &str) -> Outcome {
    use crate::conformance::{Fault, Judgement, Sighting, Status};
    let judgement = Judgement::fault(Fault::Died, how.to_owned());
    Outcome {
        forward: Status::Wrong,
        sightings: vec![Sighting { quantity: "call".to_owned(), judgement }],
        ..Outcome::new(trial)
    }
}
