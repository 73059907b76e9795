//! The built-in policy, resolution, overlays, and every mistake with its line.

use super::policy::{BUILTIN, BUILTIN_FILE};
use super::*;
use crate::numerics::{DType, ErrorModel, FloatFormat, InputRounding, Role};
use crate::precision::Precision;

fn description(name: &str, role: Role, precision: Precision, scope: Scope) -> QuantityDescription {
    QuantityDescription {
        name: name.to_owned(),
        quantity: Quantity::of(name).unwrap(),
        role,
        precision,
        scope,
    }
}

fn rule_of(policy: &Policy, name: &str, role: Role, precision: Precision, scope: Scope) -> String {
    policy.rule_for(&description(name, role, precision, scope)).unwrap().id.clone()
}

/// An overlay with one rule, in which `change` replaces text.
fn overlay(change: (&str, &str)) -> String {
    let text = r#"schema = 1
extends = "default"

[[band]]
id = "mine"
precision = "f32"
role = "matmul"
quantity = "gradient"
unit = "floor"
pass = 2.0
fail = 4.0
reason = "measured"
"#;
    assert!(change.0.is_empty() || text.contains(change.0), "{}", change.0);
    text.replacen(change.0, change.1, 1)
}

/// Line and mistake of a policy that has exactly one.
fn mistake(text: &str) -> (usize, PolicyProblem) {
    let errors = Policy::parse("mine.toml", text).unwrap_err().errors;
    assert_eq!(errors.len(), 1, "{errors:#?}");
    let error = errors.into_iter().next().unwrap();
    assert!(error.to_string().starts_with(&format!("mine.toml:{}: ", error.place.line)));
    (error.place.line, error.problem)
}

fn in_rule(change: (&str, &str)) -> (usize, PolicyProblem) {
    mistake(&overlay(change))
}

#[test]
fn the_built_in_policy_is_read_and_says_what_numerics_says() {
    let policy = Policy::builtin().unwrap();
    assert_eq!(policy.name, "default");
    assert_eq!(policy.model, ErrorModel::default());
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        assert_eq!(policy.formats.of(dtype), FloatFormat::of(dtype), "{dtype}");
    }
    assert_eq!(policy.formats.of_matmul(Precision::Tf32), FloatFormat::tf32(InputRounding::Truncate));
    assert_eq!(policy.formats.of_matmul(Precision::AmpBf16), FloatFormat::of(DType::BF16));
    assert_eq!(policy.placement.mode, PlacementMode::Strict);
    assert_eq!(policy.run.mc_replicas, 16);
    assert!(policy.rules.iter().all(|rule| !rule.reason.is_empty() && !rule.source.is_empty()));
    let underflow = policy.formats.underflow_floor(DType::F16, 4);
    assert_eq!(underflow, 2.0 * 2f64.powi(-25));
}

#[test]
fn every_rule_cites_the_line_it_stands_on() {
    let lines: Vec<&str> = BUILTIN.lines().collect();
    for rule in Policy::builtin().unwrap().rules {
        assert_eq!(rule.place.file, BUILTIN_FILE);
        assert_eq!(lines[rule.place.line - 1], "[[band]]", "{}", rule.id);
        assert!(lines[rule.place.line].contains(&rule.id), "{}", rule.id);
    }
}

#[test]
fn the_last_matching_rule_wins() {
    use Scope::{EndToEnd, Isolated};
    let policy = Policy::builtin().unwrap();
    for (name, role, precision, scope, id) in [
        ("logits", Role::Matmul, Precision::F32, EndToEnd, "floor"),
        ("logits", Role::Matmul, Precision::Tf32, EndToEnd, "floor"),
        ("logits", Role::Matmul, Precision::F64, EndToEnd, "f64-two-sided"),
        ("gradient/w", Role::Matmul, Precision::Bf16, EndToEnd, "bf16-end-to-end"),
        ("gradient/w", Role::Matmul, Precision::Bf16, Isolated, "bf16-isolated"),
        ("gradient/w", Role::Matmul, Precision::AmpBf16, EndToEnd, "amp-bf16-end-to-end"),
        ("loss", Role::Loss, Precision::Bf16, EndToEnd, "loss"),
        ("activation/x", Role::Exact, Precision::F16, Isolated, "exact"),
        ("activation/x", Role::Exact, Precision::F16, EndToEnd, "floor"),
        ("metric/top1", Role::Metric, Precision::F32, EndToEnd, "metric"),
        ("metric/loss", Role::Metric, Precision::F32, EndToEnd, "metric-loss"),
    ] {
        assert_eq!(rule_of(&policy, name, role, precision, scope), id, "{name} {precision:?}");
    }
}

#[test]
fn a_band_leads_to_its_rule_line_and_reason() {
    let policy = Policy::parse("mine.toml", &overlay(("", ""))).unwrap();
    let quantities = [
        description("gradient/w", Role::Matmul, Precision::F32, Scope::EndToEnd),
        description("logits", Role::Matmul, Precision::F32, Scope::EndToEnd),
    ];
    let bands = bands_for(&policy, &quantities);
    assert_eq!(bands.len(), 2);
    assert_eq!((bands[0].pass, bands[0].fail, bands[0].unit), (2.0, 4.0, Unit::Floor));
    assert_eq!((bands[0].rule.as_str(), bands[0].reason.as_str()), ("mine", "measured"));
    assert_eq!(bands[0].place.to_string(), "mine.toml:4");
    assert_eq!((bands[1].rule.as_str(), bands[1].place.file.as_str()), ("floor", BUILTIN_FILE));
}

#[test]
fn a_rule_may_name_quantities() {
    let text = overlay(("quantity = \"gradient\"", "quantity = \"*\"\nname = \"gradient/head.*\""));
    let policy = Policy::parse("mine.toml", &text).unwrap();
    let of = |name| rule_of(&policy, name, Role::Matmul, Precision::F32, Scope::EndToEnd);
    assert_eq!((of("gradient/head.weight").as_str(), of("gradient/body.weight").as_str()), ("mine", "floor"));
}

#[test]
fn an_overlay_keeps_what_it_does_not_say() {
    let text = "schema = 1\nextends = \"default\"\n[run]\nmc_replicas = 32\n[format.f16]\nu_acc = 4.8828125e-4\n\
                [placement]\nmode = \"allow-listed\"\n[[placement.allow]]\noperator = \"aten::sort\"\nreason = \"r\"\n";
    let (policy, default) = (Policy::parse("o.toml", text).unwrap(), Policy::builtin().unwrap());
    assert_eq!((policy.run.mc_replicas, policy.run.alpha_run), (32, default.run.alpha_run));
    assert_eq!(policy.formats.of(DType::F16).u_acc, DType::F16.unit_roundoff());
    assert_eq!(policy.rules, default.rules);
    assert_eq!(policy.placement.allows("aten::sort").unwrap().place.to_string(), "o.toml:9");
    assert!(policy.placement.allows("aten::topk").is_none());
    assert!(default.placement.allows("aten::sort").is_none());
}

#[test]
fn the_hash_follows_the_numbers_and_not_the_words() {
    let hash = |text: &str| Policy::parse("a.toml", text).unwrap().hash();
    let plain = overlay(("", ""));
    assert_eq!(hash(&plain).len(), 64);
    assert_eq!(hash(&plain), Policy::parse("elsewhere.toml", &format!("# remark\n{plain}")).unwrap().hash());
    assert_eq!(hash(&plain), hash(&overlay(("measured", "guessed"))));
    assert_ne!(hash(&plain), hash(&overlay(("pass = 2.0", "pass = 2.0000000000000004"))));
    assert_ne!(hash(&plain), hash(&overlay(("role = \"matmul\"", "role = \"*\""))));
    assert_ne!(hash(&plain), Policy::builtin().unwrap().hash());
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_a_suggestion() {
    let (line, problem) = in_rule(("reason = ", "resaon = \"x\"\nreason = "));
    let PolicyProblem::UnknownKey { key, suggestion, .. } = &problem else { panic!("{problem:?}") };
    assert_eq!((line, key.as_str(), suggestion.as_deref()), (12, "resaon", Some("reason")));
    assert!(problem.to_string().contains("did you mean `reason`"));
    for text in
        ["[runn]\n", "[run]\nalpha = 1\n", "[model]\nc_ack = 1\n", "[format.f8]\n", "[placement]\nmod = 1\n"]
    {
        let text = format!("schema = 1\nextends = \"default\"\n{text}");
        let errors = Policy::parse("x.toml", &text).unwrap_err().errors;
        assert!(errors.iter().any(|e| matches!(e.problem, PolicyProblem::UnknownKey { .. })), "{text}");
    }
}

#[test]
fn unknown_words_are_refused_each_with_a_suggestion() {
    for (change, kind, wanted) in [
        (("\"f32\"", "\"f23\""), "precision", "f32"),
        (("\"matmul\"", "\"matmull\""), "role", "matmul"),
        (("\"gradient\"", "\"gradients\""), "quantity", "gradient"),
        (("\"floor\"", "\"floors\""), "unit", "floor"),
        (("unit = ", "scope = \"isolate\"\nunit = "), "scope", "isolated"),
    ] {
        let (_, problem) = in_rule(change);
        let PolicyProblem::UnknownWord { what, suggestion, .. } = problem else { panic!("{problem:?}") };
        assert_eq!((what, suggestion.as_deref()), (kind, Some(wanted)));
    }
    let (line, problem) = mistake("schema = 1\nextends = \"default\"\n[placement]\nmode = \"strickt\"\n");
    assert!(line == 4 && matches!(problem, PolicyProblem::UnknownWord { what: "placement mode", .. }));
}

#[test]
fn a_tolerance_is_a_finite_number_from_zero_on() {
    for value in ["-1.0", "nan", "inf", "-inf"] {
        let (line, problem) = in_rule(("pass = 2.0", &format!("pass = {value}")));
        assert!(line == 10 && matches!(problem, PolicyProblem::Negative { key: "pass", .. }), "{value}");
    }
    let (_, problem) = in_rule(("fail = 4.0", "fail = 4.0\nslack_ulp = -2"));
    assert!(matches!(problem, PolicyProblem::Negative { key: "slack_ulp", .. }));
}

#[test]
fn pass_may_not_exceed_fail() {
    let (line, problem) = in_rule(("pass = 2.0", "pass = 5"));
    assert!(line == 10 && matches!(problem, PolicyProblem::PassAboveFail { .. }));
}

#[test]
fn a_band_below_one_rounding_step_is_refused() {
    let relative = |precision: &str, pass: &str| {
        overlay((
            "unit = \"floor\"\npass = 2.0\nfail = 4.0",
            &format!("unit = \"relative\"\npass = {pass}\nfail = 0.5"),
        ))
        .replace("\"f32\"", &format!("\"{precision}\""))
    };
    // One rule for every dtype, as other tools have it, is below one step of bf16.
    let (line, problem) = mistake(&relative("*", "1e-5"));
    assert!(
        line == 10 && matches!(problem, PolicyProblem::BelowRounding { precision: "bf16", .. }),
        "{problem}"
    );
    assert!(Policy::parse("x", &relative("f32", "1e-5")).is_ok());
    assert!(matches!(mistake(&relative("f32", "5.9e-8")).1, PolicyProblem::BelowRounding { .. }));
    assert!(matches!(mistake(&relative("tf32", "1e-5")).1, PolicyProblem::BelowRounding { .. }));
    assert!(matches!(in_rule(("pass = 2.0", "pass = 0.9")).1, PolicyProblem::BelowRounding { .. }));
    let ulp = |role: &str, pass: &str| {
        overlay(("unit = \"floor\"\npass = 2.0", &format!("unit = \"ulp\"\npass = {pass}")))
            .replace("\"matmul\"", &format!("\"{role}\""))
    };
    assert!(matches!(mistake(&ulp("matmul", "0")).1, PolicyProblem::BelowRounding { .. }));
    assert!(matches!(mistake(&ulp("matmul", "0.4")).1, PolicyProblem::BelowRounding { .. }));
    assert!(Policy::parse("x", &ulp("matmul", "0.5")).is_ok());
    assert!(Policy::parse("x", &ulp("exact", "0")).is_ok());
}

#[test]
fn a_band_above_the_signal_is_refused() {
    for (unit, pass, fail) in [("relative", "0.5", "1.0"), ("ulp", "2", "8388608"), ("floor", "3", "4e7")] {
        let new = format!("unit = \"{unit}\"\npass = {pass}\nfail = {fail}");
        let (line, problem) = in_rule(("unit = \"floor\"\npass = 2.0\nfail = 4.0", &new));
        assert!(line == 11 && matches!(problem, PolicyProblem::AboveSignal { .. }), "{unit}: {problem}");
    }
    let (_, problem) = in_rule(("fail = 4.0", "fail = 4.0\nslack_ulp = 1e9"));
    assert!(matches!(problem, PolicyProblem::AboveSignal { unit: "ulp", .. }));
}

#[test]
fn a_rule_without_a_reason_is_refused() {
    for change in [("reason = \"measured\"\n", ""), ("\"measured\"", "\"  \"")] {
        let (line, problem) = in_rule(change);
        assert_eq!((line, problem), (4, PolicyProblem::MissingReason { id: "mine".to_owned() }));
    }
    let text = "schema = 1\nextends = \"default\"\n[placement]\nmode = \"allow-listed\"\n\
                [[placement.allow]]\noperator = \"aten::sort\"\n";
    let (line, problem) = mistake(text);
    assert!(line == 5 && matches!(problem, PolicyProblem::MissingKey { key: "reason", .. }));
}

#[test]
fn a_duplicate_id_is_refused_and_names_the_first_use() {
    let twice = format!("{}{}", overlay(("", "")), overlay(("", "")).split_once("\n\n").unwrap().1);
    let (line, problem) = mistake(&twice);
    let PolicyProblem::DuplicateId { first, .. } = problem else { panic!("{problem:?}") };
    assert_eq!((line, first.to_string().as_str()), (13, "mine.toml:4"));
    let (_, problem) = in_rule(("\"mine\"", "\"loss\""));
    let PolicyProblem::DuplicateId { first, .. } = problem else { panic!("{problem:?}") };
    assert_eq!(first.file, BUILTIN_FILE);
}

#[test]
fn samples_are_counted_in_metrics_only() {
    let (line, problem) = in_rule(("\"floor\"", "\"samples\""));
    assert!(line == 4 && matches!(problem, PolicyProblem::SamplesWithoutMetric { .. }));
}

#[test]
fn missing_keys_and_wrong_types_are_refused() {
    for (key, line) in [
        ("id", "id = \"mine\"\n"),
        ("precision", "precision = \"f32\"\n"),
        ("unit", "unit = \"floor\"\n"),
        ("pass", "pass = 2.0\n"),
    ] {
        let (_, problem) = in_rule((line, ""));
        assert!(matches!(problem, PolicyProblem::MissingKey { key: k, .. } if k == key), "{key}: {problem}");
    }
    let (line, problem) = in_rule(("pass = 2.0", "pass = \"2.0\""));
    assert!(line == 10 && matches!(problem, PolicyProblem::WrongType { expected: "a number", .. }));
    assert!(matches!(
        mistake("schema = 1\nextends = \"default\"\nrun = 3\n").1,
        PolicyProblem::WrongType { .. }
    ));
    assert!(matches!(
        mistake("schema = 1\nextends = \"default\"\nband = 3\n").1,
        PolicyProblem::WrongType { .. }
    ));
}

#[test]
fn settings_out_of_range_are_refused() {
    for (table, key, value) in [
        ("run", "alpha_run", "0.0"),
        ("run", "alpha_run", "nan"),
        ("run", "mc_replicas", "1"),
        ("run", "mc_replicas", "2.5"),
        ("run", "power_floor", "1.0"),
        ("run", "inconclusive_gradients", "-0.1"),
        ("model", "c_acc", "-0.3"),
        ("model", "fn_ulp", "inf"),
        ("format.f16", "u_store", "0"),
        ("format.bf16", "u_acc", "1.5"),
    ] {
        let text = format!("schema = 1\nextends = \"default\"\n[{table}]\n{key} = {value}\n");
        let (line, problem) = mistake(&text);
        assert!(line == 4 && matches!(problem, PolicyProblem::OutOfRange { .. }), "{key}: {problem}");
    }
}

#[test]
fn other_schemas_bases_and_broken_files_are_refused() {
    assert!(matches!(mistake("schema = 2\n").1, PolicyProblem::Schema { .. }));
    assert!(matches!(mistake("schema = 1\nextends = \"other\"\n"), (2, PolicyProblem::Extends(_))));
    assert!(matches!(
        Policy::parse("x", "schema = 1\n[run\n").unwrap_err().errors[0].problem,
        PolicyProblem::Syntax(_)
    ));
    let missing = Policy::load(std::path::Path::new("/nonexistent/policy.toml")).unwrap_err();
    assert!(matches!(missing.errors[0].problem, PolicyProblem::Unreadable(_)));
    assert!(missing.to_string().starts_with("/nonexistent/policy.toml:1: cannot read"), "{missing}");
    let (_, problem) = mistake("extends = \"default\"\n");
    assert!(matches!(problem, PolicyProblem::MissingKey { key: "schema", .. }));
}

#[test]
fn allowed_fallbacks_without_effect_are_refused() {
    let text =
        "schema = 1\nextends = \"default\"\n[[placement.allow]]\noperator = \"aten::sort\"\nreason = \"r\"\n";
    assert!(matches!(mistake(text).1, PolicyProblem::AllowListUnused { mode: "strict" }));
}

#[test]
fn a_policy_that_stands_alone_must_be_whole() {
    let errors = Policy::parse("x", "schema = 1\n").unwrap_err().errors;
    let missing: Vec<_> = errors
        .iter()
        .filter_map(|e| if let PolicyProblem::MissingKey { key, .. } = e.problem { Some(key) } else { None })
        .collect();
    assert_eq!(missing, ["model", "run", "format", "placement"]);
    // The built-in one without its rule for everything has a gap.
    let text = BUILTIN.replacen("precision = \"*\"", "precision = \"f32\"", 1);
    let (_, problem) = mistake(&text);
    assert!(matches!(problem, PolicyProblem::Uncovered { .. }), "{problem}");
    assert_eq!(Policy::parse("x", BUILTIN).unwrap().hash(), Policy::builtin().unwrap().hash());
}

#[test]
fn all_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let text = overlay(("pass = 2.0", "pass = -2.0")).replace("extends", "zzz = 1\nextends") + "[runn]\n";
    let errors = Policy::parse("x.toml", &text).unwrap_err();
    let lines: Vec<_> = errors.errors.iter().map(|e| e.place.line).collect();
    assert_eq!(lines, [2, 11, 14]);
    assert_eq!(errors.to_string().lines().count(), 3);
}

#[test]
fn the_documented_policy_is_accepted_and_the_documented_messages_are_real() {
    let document = include_str!("../../docs/policies.md");
    let (_, rest) = document.split_once("```toml\n").unwrap();
    let policy = Policy::parse("mine.toml", rest.split_once("```").unwrap().0).unwrap();
    let name = "gradient/classifier.weight";
    assert_eq!(rule_of(&policy, name, Role::Matmul, Precision::Bf16, Scope::EndToEnd), "our-head");
    for (change, message) in [
        (
            ("reason = ", "resaon = \"x\"\nreason = "),
            "mine.toml:12: unknown key `resaon` in [[band]]; did you mean `reason`?",
        ),
        (("\"matmul\"", "\"matmull\""), "unknown role `matmull`; did you mean `matmul`?"),
        (("unit = \"floor\"\n", ""), "[[band]] has no `unit`; add it"),
        (
            ("reason = \"measured\"\n", ""),
            "band `mine` has no reason; say in `reason` why its numbers have their values",
        ),
        (("pass = 2.0", "pass = -1"), "a tolerance is a finite number, 0 or more"),
        (("pass = 2.0", "pass = 5"), "`pass` may not exceed `fail`"),
        (
            ("pass = 2.0", "pass = 0.5"),
            "correct results would fail; raise `pass`, or name the precisions that it is meant for",
        ),
        (("fail = 4.0", "fail = 1e9"), "nothing could fail it; lower `fail`"),
        (("\"floor\"", "\"samples\""), "the unit `samples` goes with the quantity `metric` and no other"),
    ] {
        let printed = Policy::parse("mine.toml", &overlay(change)).unwrap_err().to_string();
        assert!(printed.contains(message), "{printed}");
        assert!(document.contains(message), "not documented: {message}");
    }
}
