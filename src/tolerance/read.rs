//! TOML to [`Policy`], collecting every mistake with its line.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::check::{Spans, check_rule, gap};
use super::format::FORMATS;
use super::policy::{BUILTIN, BUILTIN_FILE};
use super::rule::{Quantity, Rule, Scope, Unit, Word};
use super::{
    AllowedFallback, Formats, Place, Placement, PlacementMode, Policy, PolicyError, PolicyErrors,
    PolicyProblem, RunSettings,
};
use crate::numerics::{ErrorModel, InputRounding, Role};
use crate::precision::Precision;

/// A policy text being read.
pub(super) struct Source<'a> {
    file: String,
    text: &'a str,
    errors: Vec<PolicyError>,
    /// Keys that are not given keep the value of the policy that is extended.
    overlay: bool,
}

type Value<'a> = Spanned<DeValue<'a>>;

/// A table of the file, with its name for messages.
struct Section<'a, 'b> {
    table: &'b DeTable<'a>,
    name: String,
    span: Range<usize>,
}

impl<'a, 'b> Section<'a, 'b> {
    fn get(&self, key: &str) -> Option<&'b Value<'a>> {
        self.table.iter().find(|(k, _)| k.get_ref() == key).map(|(_, value)| value)
    }
}

impl Word for PlacementMode {
    fn words() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|m| (m.name(), m)).to_vec()
    }
}

impl Word for InputRounding {
    fn words() -> Vec<(&'static str, Self)> {
        vec![("exact", Self::Exact), ("nearest", Self::Nearest), ("truncate", Self::Truncate)]
    }
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &str, text: &'a str) -> Self {
        Self { file: file.to_owned(), text, errors: Vec::new(), overlay: false }
    }

    pub(super) fn read(mut self) -> Result<Policy, PolicyErrors> {
        let (document, syntax) = DeTable::parse_recoverable(self.text);
        for error in &syntax {
            let span = error.span().unwrap_or(0..0);
            self.report(span, PolicyProblem::Syntax(error.message().to_owned()));
        }
        let policy = if syntax.is_empty() { self.policy(&document) } else { None };
        self.errors.sort_by_key(|error| error.span.start);
        match policy {
            Some(policy) if self.errors.is_empty() => Ok(policy),
            _ => Err(PolicyErrors { file: self.file, text: self.text.to_owned(), errors: self.errors }),
        }
    }

    fn policy(&mut self, document: &Spanned<DeTable<'a>>) -> Option<Policy> {
        let root = Section { table: document.get_ref(), name: "the policy".to_owned(), span: 0..0 };
        self.known(&root, &["schema", "extends", "model", "run", "placement", "format", "band"]);
        match self.number(&root, "schema", true) {
            Some((schema, span)) if schema != 1.0 => {
                self.report(span, PolicyProblem::Schema { found: schema.to_string() });
                return None;
            }
            _ => {}
        }
        if let Some((base, span)) = self.text_of(&root, "extends") {
            if base != "default" {
                self.report(span, PolicyProblem::Extends(base));
                return None;
            }
            self.overlay = true;
        }
        let mut policy = if self.overlay {
            match Source::new(BUILTIN_FILE, BUILTIN).read() {
                Ok(policy) => policy,
                Err(errors) => {
                    self.errors.extend(errors.errors);
                    return None;
                }
            }
        } else {
            Policy {
                name: String::new(),
                model: ErrorModel::default(),
                run: RunSettings {
                    alpha_run: 0.0,
                    mc_replicas: 0,
                    power_floor: 0.0,
                    inconclusive_gradients: 0.0,
                },
                formats: Formats::known(),
                placement: Placement { mode: PlacementMode::Strict, allow: Vec::new() },
                rules: Vec::new(),
            }
        };
        policy.name = self.file.clone();
        self.model(&root, &mut policy.model);
        self.run(&root, &mut policy.run);
        self.formats(&root, &mut policy.formats);
        self.placement(&root, &mut policy.placement);
        self.bands(&root, &mut policy);
        if self.errors.is_empty()
            && let Some(problem) = gap(&policy.rules)
        {
            self.report(0..0, problem);
        }
        Some(policy)
    }

    fn model(&mut self, root: &Section<'a, '_>, model: &mut ErrorModel) {
        let Some(section) = self.section(root, "model") else { return };
        let fields = [
            ("c_acc", &mut model.c_acc),
            ("c_store", &mut model.c_store),
            ("c_in_nearest", &mut model.c_in_nearest),
            ("c_in_truncate", &mut model.c_in_truncate),
            ("fn_ulp", &mut model.fn_ulp),
        ];
        self.known(&section, &fields.each_ref().map(|(key, _)| *key));
        for (key, field) in fields {
            let range = |v: f64| v.is_finite() && v >= 0.0;
            self.setting(&section, key, field, !self.overlay, range, "a finite number, 0 or more");
        }
    }

    fn run(&mut self, root: &Section<'a, '_>, run: &mut RunSettings) {
        let Some(section) = self.section(root, "run") else { return };
        let required = !self.overlay;
        let share = |v: f64| v > 0.0 && v < 1.0;
        self.known(&section, &["alpha_run", "mc_replicas", "power_floor", "inconclusive_gradients"]);
        self.setting(&section, "alpha_run", &mut run.alpha_run, required, share, "between 0 and 1");
        self.setting(&section, "power_floor", &mut run.power_floor, required, share, "between 0 and 1");
        let closed = |v: f64| (0.0..=1.0).contains(&v);
        let inconclusive = &mut run.inconclusive_gradients;
        self.setting(&section, "inconclusive_gradients", inconclusive, required, closed, "from 0 to 1");
        let mut replicas = f64::from(run.mc_replicas);
        let whole = |v: f64| (2.0..=4096.0).contains(&v) && v.fract() == 0.0;
        self.setting(
            &section,
            "mc_replicas",
            &mut replicas,
            required,
            whole,
            "a whole number from 2 to 4096",
        );
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        let replicas = replicas as u32;
        run.mc_replicas = replicas;
    }

    fn formats(&mut self, root: &Section<'a, '_>, formats: &mut Formats) {
        let Some(all) = self.section(root, "format") else { return };
        self.known(&all, &FORMATS);
        for name in FORMATS {
            let Some(value) = all.get(name) else {
                if !self.overlay {
                    self.report(
                        all.span.clone(),
                        PolicyProblem::MissingKey { table: "[format]".to_owned(), key: name },
                    );
                }
                continue;
            };
            let Some(section) = self.as_table(value, format!("[format.{name}]")) else { continue };
            self.known(&section, &["u_store", "u_acc", "u_in", "input_rounding", "underflow"]);
            let Some(format) = formats.0.get_mut(name) else { continue };
            let required = !self.overlay;
            let roundoff = |v: f64| v > 0.0 && v < 1.0;
            let (positive, zero_up) = ("between 0 and 1", "0 or more, and below 1");
            let operand = |v: f64| (0.0..1.0).contains(&v);
            self.setting(&section, "u_store", &mut format.u_store, required, roundoff, positive);
            self.setting(&section, "u_acc", &mut format.u_acc, required, roundoff, positive);
            self.setting(&section, "underflow", &mut format.underflow, required, operand, zero_up);
            self.setting(&section, "u_in", &mut format.u_in, false, operand, zero_up);
            if let Some(rounding) = self.word(&section, "input_rounding", "rounding") {
                format.input_rounding = rounding;
            }
        }
    }

    fn placement(&mut self, root: &Section<'a, '_>, placement: &mut Placement) {
        let Some(section) = self.section(root, "placement") else { return };
        self.known(&section, &["mode", "allow"]);
        match self.word(&section, "mode", "placement mode") {
            Some(mode) => placement.mode = mode,
            None if section.get("mode").is_none() && !self.overlay => {
                let problem = PolicyProblem::MissingKey { table: section.name.clone(), key: "mode" };
                self.report(section.span.clone(), problem);
            }
            None => {}
        }
        for entry in self.tables(&section, "allow", "[[placement.allow]]") {
            self.known(&entry, &["operator", "reason"]);
            let operator = self.required_text(&entry, "operator");
            let reason = self.required_text(&entry, "reason");
            if let (Some(operator), Some(reason)) = (operator, reason) {
                placement.allow.push(AllowedFallback { operator, reason, place: self.place(&entry.span) });
            }
        }
        if !placement.allow.is_empty() && placement.mode != PlacementMode::AllowListed {
            self.report(section.span, PolicyProblem::AllowListUnused { mode: placement.mode.name() });
        }
    }

    fn bands(&mut self, root: &Section<'a, '_>, policy: &mut Policy) {
        for section in self.tables(root, "band", "[[band]]") {
            self.known(
                &section,
                &[
                    "id",
                    "precision",
                    "role",
                    "quantity",
                    "scope",
                    "name",
                    "unit",
                    "pass",
                    "fail",
                    "slack_ulp",
                    "reason",
                    "source",
                ],
            );
            let Some((rule, spans)) = self.rule(&section) else { continue };
            if let Some(first) = policy.rules.iter().find(|r| r.id == rule.id) {
                let problem = PolicyProblem::DuplicateId { id: rule.id.clone(), first: first.place.clone() };
                self.report(spans.rule.clone(), problem);
            }
            for (span, problem) in check_rule(&rule, &policy.model, &policy.formats, &spans) {
                self.report(span, problem);
            }
            policy.rules.push(rule);
        }
    }

    fn rule(&mut self, section: &Section<'a, '_>) -> Option<(Rule, Spans)> {
        let before = self.errors.len();
        let id = self.required_text(section, "id");
        for key in ["precision", "role", "quantity", "unit"] {
            if section.get(key).is_none() {
                let problem = PolicyProblem::MissingKey { table: section.name.clone(), key };
                self.report(section.span.clone(), problem);
            }
        }
        let precision: Option<Precision> = self.pattern(section, "precision", "precision");
        let role: Option<Role> = self.pattern(section, "role", "role");
        let quantity: Option<Quantity> = self.pattern(section, "quantity", "quantity");
        let scope: Option<Scope> = self.pattern(section, "scope", "scope");
        let unit: Option<Unit> = self.word(section, "unit", "unit");
        let pass = self.number(section, "pass", true);
        let fail = self.number(section, "fail", true);
        let slack_ulp = self.number(section, "slack_ulp", false);
        let name = self.text_of(section, "name").map(|(name, _)| name);
        let source = self.text_of(section, "source").map(|(source, _)| source);
        let reason = self.text_of(section, "reason").map(|(reason, _)| reason);
        let reason = reason.filter(|reason| !reason.trim().is_empty());
        if reason.is_none() {
            let id = id.clone().unwrap_or_else(|| "?".to_owned());
            self.report(section.span.clone(), PolicyProblem::MissingReason { id });
        }
        if self.errors.len() > before {
            return None;
        }
        let ((pass, pass_span), (fail, fail_span)) = (pass?, fail?);
        let rule = Rule {
            id: id?,
            precision,
            role,
            quantity,
            scope,
            name,
            unit: unit?,
            pass,
            fail,
            slack_ulp: slack_ulp.map(|(value, _)| value),
            reason: reason?,
            source: source.unwrap_or_default(),
            place: self.place(&section.span),
        };
        Some((rule, Spans { rule: section.span.clone(), pass: pass_span, fail: fail_span }))
    }

    // -- values --------------------------------------------------------------------------

    fn place(&self, span: &Range<usize>) -> Place {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        Place { file: self.file.clone(), line: 1 + before.matches('\n').count() }
    }

    fn report(&mut self, span: Range<usize>, problem: PolicyProblem) {
        let place = self.place(&span);
        self.errors.push(PolicyError { place, span, problem });
    }

    fn wrong_type(&mut self, key: &str, expected: &'static str, value: &Value<'a>) {
        let found = value.get_ref().type_str().to_owned();
        self.report(value.span(), PolicyProblem::WrongType { key: key.to_owned(), expected, found });
    }

    /// Refuses keys that are not known.
    fn known(&mut self, section: &Section<'a, '_>, known: &[&'static str]) {
        for (key, _) in section.table {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let problem = PolicyProblem::UnknownKey {
                    key: name.to_owned(),
                    table: section.name.clone(),
                    suggestion: nearest(name, known),
                    known: known.to_vec(),
                };
                self.report(key.span(), problem);
            }
        }
    }

    fn as_table<'b>(&mut self, value: &'b Value<'a>, name: String) -> Option<Section<'a, 'b>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wrong_type(&name, "a table", value);
        }
        table.map(|table| Section { table, name, span: value.span() })
    }

    /// A table below the root; missing is a mistake unless the file is an overlay.
    fn section<'b>(&mut self, root: &Section<'a, 'b>, key: &'static str) -> Option<Section<'a, 'b>> {
        let Some(value) = root.get(key) else {
            if !self.overlay {
                self.report(0..0, PolicyProblem::MissingKey { table: root.name.clone(), key });
            }
            return None;
        };
        self.as_table(value, format!("[{key}]"))
    }

    /// The tables of an array of tables.
    fn tables<'b>(&mut self, parent: &Section<'a, 'b>, key: &str, name: &str) -> Vec<Section<'a, 'b>> {
        let Some(value) = parent.get(key) else { return Vec::new() };
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(name, "an array of tables", value);
            return Vec::new();
        };
        array.iter().filter_map(|entry| self.as_table(entry, name.to_owned())).collect()
    }

    fn number(
        &mut self,
        section: &Section<'a, '_>,
        key: &'static str,
        required: bool,
    ) -> Option<(f64, Range<usize>)> {
        let Some(value) = section.get(key) else {
            if required {
                let problem = PolicyProblem::MissingKey { table: section.name.clone(), key };
                self.report(section.span.clone(), problem);
            }
            return None;
        };
        let number = match value.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) => {
                i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|i| i as f64)
            }
            _ => None,
        };
        if number.is_none() {
            self.wrong_type(key, "a number", value);
        }
        number.map(|number| (number, value.span()))
    }

    fn setting(
        &mut self,
        section: &Section<'a, '_>,
        key: &'static str,
        field: &mut f64,
        required: bool,
        accepts: impl Fn(f64) -> bool,
        range: &'static str,
    ) {
        match self.number(section, key, required) {
            Some((value, _)) if accepts(value) => *field = value,
            Some((value, span)) => {
                self.report(span, PolicyProblem::OutOfRange { key: key.to_owned(), value, range });
            }
            None => {}
        }
    }

    fn text_of(&mut self, section: &Section<'a, '_>, key: &str) -> Option<(String, Range<usize>)> {
        let value = section.get(key)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wrong_type(key, "a string", value);
        }
        text.map(|text| (text.to_owned(), value.span()))
    }

    fn required_text(&mut self, section: &Section<'a, '_>, key: &'static str) -> Option<String> {
        if section.get(key).is_none() {
            let problem = PolicyProblem::MissingKey { table: section.name.clone(), key };
            self.report(section.span.clone(), problem);
        }
        self.text_of(section, key).map(|(text, _)| text)
    }

    fn word<W: Word>(&mut self, section: &Section<'a, '_>, key: &str, what: &'static str) -> Option<W> {
        let (text, span) = self.text_of(section, key)?;
        self.lookup(&text, span, what, &[])
    }

    /// A word, or `*` for any.
    fn pattern<W: Word>(&mut self, section: &Section<'a, '_>, key: &str, what: &'static str) -> Option<W> {
        let (text, span) = self.text_of(section, key)?;
        if text == "*" { None } else { self.lookup(&text, span, what, &["*"]) }
    }

    fn lookup<W: Word>(
        &mut self,
        text: &str,
        span: Range<usize>,
        what: &'static str,
        besides: &[&'static str],
    ) -> Option<W> {
        let words = W::words();
        let found = words.iter().find(|(name, _)| *name == text).map(|(_, word)| *word);
        if found.is_none() {
            let known: Vec<_> = words.iter().map(|(name, _)| *name).chain(besides.iter().copied()).collect();
            let suggestion = nearest(text, &known);
            self.report(span, PolicyProblem::UnknownWord { what, word: text.to_owned(), suggestion, known });
        }
        found
    }
}

/// The known word that is nearest to a mistyped one, if any is near.
fn nearest(word: &str, known: &[&'static str]) -> Option<String> {
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.to_owned())
}
