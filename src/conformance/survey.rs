//! Outcomes of many trials, by operator.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::attempt::{Outcome, Status};
use super::judge::Fault;
use super::known::{KnownDefects, Place};
use crate::engine::EngineInfo;
use crate::numerics::DType;
use crate::program::OpKind;

/// How many trials came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Within.
    pub right: usize,
    /// Between the two multiples.
    pub close: usize,
    /// Explained by sums and steps in the 16-bit dtype alone.
    pub coarse: usize,
    /// Outside.
    pub wrong: usize,
    /// Declared as unsupported.
    pub unsupported: usize,
    /// Could not be tried.
    pub untested: usize,
}

impl Tally {
    fn count(&mut self, status: Status) {
        match status {
            Status::None => {}
            Status::Right => self.right += 1,
            Status::Close => self.close += 1,
            Status::Coarse => self.coarse += 1,
            Status::Wrong => self.wrong += 1,
            Status::Unsupported => self.unsupported += 1,
            Status::Untested => self.untested += 1,
        }
    }

    /// Trials that were judged.
    #[must_use]
    pub const fn judged(&self) -> usize {
        self.right + self.close + self.coarse + self.wrong
    }

    /// What a table says of it. Unsupported and untested are never right.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        if self.wrong > 0 {
            "WRONG"
        } else if self.coarse > 0 {
            "coarse"
        } else if self.judged() > 0 {
            "right"
        } else if self.unsupported > 0 {
            "unsupported"
        } else if self.untested > 0 {
            "untested"
        } else {
            ""
        }
    }
}

/// One operator in one dtype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Results.
    pub forward: Tally,
    /// Gradients.
    pub backward: Tally,
}

/// What is wrong with one quantity of an operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Defect {
    /// `result.0`, `gradient of weight`.
    pub quantity: String,
    /// What kind.
    pub fault: Fault,
    /// Dtypes that show it.
    pub dtypes: BTreeSet<DType>,
    /// Trials that show it.
    pub trials: usize,
    /// Largest finite distance, in floors; `None` where it is not a matter of size.
    pub floors: Option<f64>,
    /// The smallest trial that shows it.
    pub smallest: String,
    /// What was seen there.
    pub note: String,
    /// Where it is known from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<KnownAs>,
    #[serde(skip)]
    elements: usize,
}

/// A known defect of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KnownAs {
    /// Cause.
    pub reason: String,
    /// Where it is described.
    pub reference: String,
}

/// Everything about one operator (with one kernel set).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorRow {
    /// `ATen` name.
    pub operator: String,
    /// Kernel set, unless it is the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// By dtype.
    pub cells: BTreeMap<DType, Cell>,
    /// Decompositions that stand in for it somewhere.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub decomposed: BTreeSet<String>,
    /// Reasons of what is unsupported or untested.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub reasons: BTreeSet<String>,
    /// Modes that it was seen to compute in.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<DType, String>,
    /// What is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defects: Vec<Defect>,
}

impl OperatorRow {
    /// Operator, and the kernel set where it is not the default one.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.kernels {
            Some(kernels) => format!("{} ({kernels})", self.operator),
            None => self.operator.clone(),
        }
    }

    /// Whether any trial is wrong.
    #[must_use]
    pub const fn is_wrong(&self) -> bool {
        !self.defects.is_empty()
    }
}

/// All trials of one target.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    /// Target as asked for.
    pub target: String,
    /// Who it is; `None` if it is absent.
    pub engine: Option<EngineInfo>,
    /// Why nothing, or not everything, was tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Trials.
    pub trials: usize,
    /// Operators in the order of the set.
    pub operators: Vec<OperatorRow>,
}

impl Survey {
    /// Groups outcomes by operator.
    #[must_use]
    pub fn of(target: &str, engine: Option<EngineInfo>, outcomes: &[Outcome], known: &KnownDefects) -> Self {
        let order = |name: &str| OpKind::ALL.iter().position(|kind| kind.name() == name);
        let mut rows: BTreeMap<(Option<usize>, String, Option<String>), OperatorRow> = BTreeMap::new();
        for outcome in outcomes {
            let key = (order(&outcome.operator), outcome.operator.clone(), outcome.kernels.clone());
            let row = rows.entry(key).or_insert_with(|| OperatorRow {
                operator: outcome.operator.clone(),
                kernels: outcome.kernels.clone(),
                cells: BTreeMap::new(),
                decomposed: BTreeSet::new(),
                reasons: BTreeSet::new(),
                modes: BTreeMap::new(),
                defects: Vec::new(),
            });
            row.add(outcome);
        }
        let mut operators: Vec<OperatorRow> = rows.into_values().collect();
        if let Some(engine) = &engine {
            for row in &mut operators {
                for defect in &mut row.defects {
                    let place = Place {
                        engine,
                        operator: &row.operator,
                        kernels: row.kernels.as_deref(),
                        quantity: &defect.quantity,
                        fault: defect.fault,
                        dtypes: &defect.dtypes,
                    };
                    defect.known = known.find(&place);
                }
            }
        }
        Self { target: target.to_owned(), engine, notes: Vec::new(), trials: outcomes.len(), operators }
    }

    /// Whether anything was judged.
    #[must_use]
    pub fn judged(&self) -> usize {
        let cells = self.operators.iter().flat_map(|row| row.cells.values());
        cells.map(|cell| cell.forward.judged() + cell.backward.judged()).sum()
    }

    /// Operators with a defect.
    pub fn wrong(&self) -> impl Iterator<Item = &OperatorRow> {
        self.operators.iter().filter(|row| row.is_wrong())
    }
}

impl OperatorRow {
    fn add(&mut self, outcome: &Outcome) {
        let cell = self.cells.entry(outcome.dtype).or_default();
        cell.forward.count(outcome.forward);
        cell.backward.count(outcome.backward);
        self.decomposed.extend(outcome.decomposed.clone());
        self.reasons.extend(outcome.reason.clone());
        if let Some(mode) = &outcome.mode {
            self.modes.insert(outcome.dtype, mode.clone());
        }
        for sighting in &outcome.sightings {
            let Some(fault) = sighting.judgement.fault else { continue };
            let floors = Some(sighting.judgement.floors).filter(|floors| floors.is_finite());
            let same = |d: &&mut Defect| d.quantity == sighting.quantity && d.fault == fault;
            match self.defects.iter_mut().find(same) {
                None => self.defects.push(Defect {
                    quantity: sighting.quantity.clone(),
                    fault,
                    dtypes: BTreeSet::from([outcome.dtype]),
                    trials: 1,
                    floors,
                    smallest: outcome.trial.clone(),
                    note: sighting.judgement.note.clone(),
                    known: None,
                    elements: outcome.elements,
                }),
                Some(defect) => {
                    defect.dtypes.insert(outcome.dtype);
                    defect.trials += 1;
                    if floors.is_some_and(|floors| defect.floors.is_none_or(|before| floors > before)) {
                        defect.floors = floors;
                    }
                    if outcome.elements < defect.elements {
                        defect.elements = outcome.elements;
                        defect.smallest.clone_from(&outcome.trial);
                        defect.note.clone_from(&sighting.judgement.note);
                    }
                }
            }
        }
    }
}
