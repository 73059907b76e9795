//! Plans carried out on the fixtures, in this process and in others.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::recording::{Check, Evaluation, Manifest, QuantityKind, Recording, State};

fn fixture(name: &str) -> SubjectSpec {
    SubjectSpec::new(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name))
}

fn plan(target: &str, out: &Path) -> Plan {
    Plan::new(fixture("mlp-tiny"), target.parse().unwrap(), out)
}

fn run(plan: &Plan) -> Recording {
    execute(plan, "key", &|_, _| {}).unwrap()
}

fn planted(fault: &str) -> (tempfile::TempDir, Recording) {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan { plant: Some(fault.parse().unwrap()), ..plan("candle:cpu@f32", dir.path()) };
    let recording = run(&plan);
    assert_eq!(recording.manifest().planted.as_deref(), Some(fault));
    (dir, recording)
}

fn values(recording: &Recording, name: &str) -> Vec<f64> {
    recording.tensor(name).unwrap().to_f64()
}

/// Largest difference relative to the largest value.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, crate::numerics::max_nan);
    let difference = largest(&mut a.iter().zip(b).map(|(a, b)| (a - b).abs()));
    difference / largest(&mut b.iter().map(|b| b.abs()))
}

#[test]
fn two_engines_record_the_same_quantities_of_the_same_subject() {
    let dir = tempfile::tempdir().unwrap();
    let candle = run(&plan("candle:cpu@f32", dir.path()));
    let reference = run(&plan("reference@f32", dir.path()));
    assert_eq!(candle.manifest().subject, reference.manifest().subject);
    let names = |r: &Recording| r.quantities().iter().map(|q| q.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&candle), names(&reference));
    for quantity in candle.quantities() {
        assert_eq!(quantity.state, State::Value, "{}", quantity.name);
        let tensor = candle.tensor(&quantity.name).unwrap();
        assert_eq!(tensor.shape(), quantity.shape, "{}", quantity.name);
        assert_eq!(tensor.dtype(), quantity.dtype, "{}", quantity.name);
        let distance = distance(&tensor.to_f64(), &values(&reference, &quantity.name));
        assert!(distance < 1e-5, "{}: {distance}", quantity.name);
    }
    candle.verify().unwrap();
}

#[test]
fn a_recording_says_what_its_run_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let recording = run(&plan("candle:cpu@f32", dir.path()));
    let manifest = recording.manifest();
    assert!(matches!(manifest.checks.determinism, Check::Held { compared } if compared > 8));
    assert!(matches!(manifest.checks.observer, Check::Held { .. }));
    assert_eq!(
        (manifest.devices.as_slice(), manifest.engine.device.as_str()),
        (&["cpu".to_owned()][..], "cpu")
    );
    assert_eq!(manifest.timing.bare.len(), 1);
    assert!(manifest.memory.peak_bytes > Some(0));
    assert_eq!(manifest.loss, values(&recording, "loss").first().copied());
    let events = recording.events().unwrap();
    assert!(!events.is_empty() && events.iter().all(|e| e.outputs.iter().all(|t| t.device == "cpu")));
}

#[test]
fn all_labelled_samples_count_also_where_they_do_not_divide_evenly() {
    let dir = tempfile::tempdir().unwrap();
    let mut evaluations: Vec<Evaluation> = Vec::new();
    for batch in [8, 16, 40] {
        let mut plan = plan("candle:cpu@f32", dir.path());
        plan.subject.batch = batch;
        let recording = run(&plan);
        let logits = recording.tensor(Evaluation::LOGITS).unwrap();
        assert_eq!(logits.shape(), [40, 5]);
        evaluations.push(recording.manifest().evaluation.clone().unwrap());
    }
    for evaluation in &evaluations {
        assert_eq!((evaluation.samples, evaluation.labelled, evaluation.top1), (40, 40, 34));
        assert_eq!(evaluation.top5, 40, "five classes");
        assert!((evaluation.loss - evaluations[0].loss).abs() < 1e-6);
    }
}

#[test]
fn the_reference_predicts_a_floor_for_every_quantity() {
    let dir = tempfile::tempdir().unwrap();
    let reference = run(&plan("reference@f32", dir.path()));
    let candle = run(&plan("candle:cpu@f32", dir.path()));
    for quantity in reference.quantities() {
        let floor = quantity.floor.unwrap_or_else(|| panic!("{} has no floor", quantity.name));
        assert!(floor.norm.is_finite() && floor.degrees_of_freedom >= 1.0, "{}", quantity.name);
        assert!(floor.degrees_of_freedom <= quantity.elements() as f64, "{}", quantity.name);
        let (a, b) = (values(&candle, &quantity.name), values(&reference, &quantity.name));
        let norm = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
        // A correct engine stays within a few floors; the size of the multiple is policy.
        assert!(norm <= 10.0 * floor.norm, "{}: {norm} against {}", quantity.name, floor.norm);
    }
    let noise = reference.manifest().noise.unwrap();
    assert_eq!((noise.replicas, noise.evaluation_replicas), (16, 4));
    let floors = reference.tensor(Evaluation::LOGIT_FLOOR).unwrap();
    assert_eq!(floors.shape(), [40]);
    assert!(floors.to_f64().iter().all(|f| *f > 0.0));
    assert!(candle.quantities().iter().all(|q| q.floor.is_none()));
}

#[test]
fn a_floor_grows_with_the_roundoff_of_the_precision() {
    let dir = tempfile::tempdir().unwrap();
    let norm = |target: &str| {
        let recording = run(&Plan { evaluate: false, ..plan(target, dir.path()) });
        recording.quantity("logits").unwrap().floor.unwrap().norm
    };
    let (f32, tf32, bf16) = (norm("reference@f32"), norm("reference@tf32"), norm("reference@bf16"));
    assert!(f32 * 100.0 < tf32 && tf32 < bf16, "{f32} {tf32} {bf16}");
}

#[test]
fn every_precision_of_candle_on_the_cpu_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    for precision in ["f64", "f32", "f16", "bf16"] {
        let recording = run(&plan(&format!("candle:cpu@{precision}"), dir.path()));
        let row = recording.quantity("gradient/layers.0.weight").unwrap();
        assert_eq!((row.dtype.name(), &row.state), (precision, &State::Value));
    }
}

#[test]
fn a_fault_of_a_value_flows_on_into_loss_and_gradients() {
    let dir = tempfile::tempdir().unwrap();
    let sound = run(&plan("candle:cpu@f32", dir.path()));
    let moves = |fault: &str, name: &str| {
        let (_dir, faulty) = planted(fault);
        distance(&values(&faulty, name), &values(&sound, name))
    };
    for fault in ["transpose:1", "scale:1e-1:1", "zero:0", "half-accumulation:0", "half-operands:2"] {
        for name in ["loss", "gradient/layers.0.weight", "gradient/layers.2.weight"] {
            let moved = moves(fault, name);
            assert!(moved > 1e-6, "{fault} moves {name} by {moved}");
        }
    }
    // At the last layer: candle's relu makes 0 of NaN, and any relu of minus infinity.
    for fault in ["nan:4", "inf:relu", "neg-inf:4"] {
        let (_dir, faulty) = planted(fault);
        assert!(values(&faulty, "logits").iter().any(|v| !v.is_finite()), "{fault}");
    }
}

#[test]
fn the_size_of_a_fault_can_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let sound = values(&run(&plan("candle:cpu@f32", dir.path())), "loss");
    let moved = |fault: &str| {
        let (_dir, faulty) = planted(fault);
        distance(&values(&faulty, "loss"), &sound)
    };
    let (large, small) = (moved("scale:1e-2:1"), moved("scale:1e-4:1"));
    assert!(large > 30.0 * small && small > 0.0, "{large} {small}");
}

#[test]
fn a_fault_of_a_gradient_stays_in_that_gradient() {
    let dir = tempfile::tempdir().unwrap();
    let sound = run(&plan("candle:cpu@f32", dir.path()));
    let name = "gradient/layers.1.weight";
    let (_dir, doubled) = planted("double-gradient:layers.1.weight");
    let twice: Vec<f64> = values(&sound, name).iter().map(|v| v * 2.0).collect();
    assert_eq!(values(&doubled, name), twice);
    let (_dir, dropped) = planted("drop-gradient:layers.1.weight");
    assert_eq!(dropped.quantity(name).unwrap().state, State::None);
    let (_dir, zero) = planted("zero-gradient:layers.1.weight");
    assert!(values(&zero, name).iter().all(|v| *v == 0.0));
    for recording in [&doubled, &dropped, &zero] {
        for row in sound.quantities().iter().filter(|row| row.name != name) {
            assert_eq!(values(recording, &row.name), values(&sound, &row.name), "{}", row.name);
        }
    }
}

#[test]
fn faults_of_delivery_show_in_states_shapes_and_devices() {
    let (_dir, silent) = planted("no-tensors");
    assert!(silent.quantities().iter().all(|q| matches!(q.state, State::Missing { .. })));
    let (_dir, short) = planted("truncate:logits");
    let row = short.quantity("logits").unwrap();
    assert_eq!(short.tensor("logits").unwrap().elements() + 1, row.elements());
    let (_dir, elsewhere) = planted("device:cuda:7");
    assert_eq!(elsewhere.manifest().devices, ["cuda:7"]);
}

#[test]
fn a_place_that_does_not_exist_is_an_error_of_the_request() {
    let dir = tempfile::tempdir().unwrap();
    for fault in ["nan:conv2d", "double-gradient:layers.9.weight", "transpose:99"] {
        let plan = Plan { plant: Some(fault.parse().unwrap()), ..plan("candle:cpu@f32", dir.path()) };
        let error = execute(&plan, "key", &|_, _| {}).unwrap_err();
        assert!(error.is_request() && error.to_string().contains(fault), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

/// A target that no machine has, with libtorch or without.
const ABSENT: &str = "torch:cuda:99@f32";

/// What its reason says where libtorch is not built in.
fn without_libtorch() -> &'static str {
    if cfg!(feature = "torch") { "" } else { "--features torch" }
}

#[test]
fn an_absent_device_is_absent_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    for (target, part) in [(ABSENT, without_libtorch()), ("candle:metal@f32", "metal")] {
        let error = execute(&plan(target, dir.path()), "key", &|_, _| {}).unwrap_err();
        let RunError::Absent { reason, .. } = &error else { panic!("{error}") };
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn the_stages_of_a_pass_are_told_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let seen = std::sync::Mutex::new(Vec::new());
    let progress = |stage: Stage, fraction: f64| {
        assert!((0.0..=1.0).contains(&fraction));
        let mut seen = seen.lock().unwrap();
        if seen.last() != Some(&stage) {
            seen.push(stage);
        }
    };
    execute(&plan("candle:cpu@f32", dir.path()), "key", &progress).unwrap();
    let expected = [
        Stage::Prepare,
        Stage::Engine,
        Stage::Bare,
        Stage::Forward,
        Stage::Backward,
        Stage::Evaluate,
        Stage::Write,
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// A program that stands in for the binary: `script` gets the plan's path in `$2`.
fn program(dir: &Path, script: &str) -> PathBuf {
    let path = dir.join("program");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A program that does what the real binary does, by this test binary.
fn serving_program(dir: &Path) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let call = format!(
        "PARITY_TEST_PLAN=\"$2\" exec '{}' --exact run::tests::serves_the_plan_that_it_is_given --nocapture",
        tests.display()
    );
    program(dir, &call)
}

/// Not a test of its own: the process that [`serving_program`] starts.
#[test]
fn serves_the_plan_that_it_is_given() {
    let Some(plan) = std::env::var_os("PARITY_TEST_PLAN") else { return };
    let code = serve(Path::new(&plan), &mut std::io::stdout());
    std::process::exit(i32::from(code));
}

fn supervision(binary: PathBuf) -> Supervision {
    Supervision { binary, fresh: false, cache: None, silence: Some(Duration::from_mins(1)) }
}

struct Check1 {
    dir: tempfile::TempDir,
    how: Supervision,
    prepared: Prepared,
}

impl Check1 {
    fn new(program: impl Fn(&Path) -> PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let how = supervision(program(dir.path()));
        Self { how, prepared: Prepared::load(&fixture("mlp-tiny")).unwrap(), dir }
    }

    fn plan(&self, target: &str) -> Plan {
        plan(target, &self.dir.path().join("out"))
    }

    fn run(&self, plans: &[Plan]) -> (Vec<Outcome>, Vec<(String, Event)>) {
        let mut seen = Vec::new();
        let outcomes = supervise(plans, &self.prepared, &self.how, &mut |target, event| {
            if !matches!(event, Event::Progress { .. }) {
                seen.push((target.to_string(), event));
            }
        });
        (outcomes.unwrap(), seen)
    }
}

#[test]
fn the_reference_runs_first_and_outcomes_keep_the_order_of_the_plans() {
    let check = Check1::new(serving_program);
    let plans = [check.plan("candle:cpu@f32"), check.plan("reference@f32")];
    let (outcomes, events) = check.run(&plans);
    assert_eq!(outcomes[0].target().to_string(), "candle:cpu@f32");
    let targets: Vec<_> = events.iter().map(|(target, _)| target.as_str()).collect();
    assert_eq!(targets, ["reference@f32", "reference@f32", "candle:cpu@f32", "candle:cpu@f32"]);
    for outcome in &outcomes {
        let Outcome::Recorded { recording, usage, .. } = outcome else { panic!("{outcome:?}") };
        recording.verify().unwrap();
        assert!(usage.unwrap().peak_bytes > 1 << 20);
    }
}

#[test]
fn a_finished_recording_is_used_again_unless_the_plan_changed() {
    let mut check = Check1::new(serving_program);
    let plan = check.plan("candle:cpu@f32");
    let event = |check: &Check1, plan: &Plan| check.run(std::slice::from_ref(plan)).1[0].1;
    assert_eq!(event(&check, &plan), Event::Started);
    assert_eq!(event(&check, &plan), Event::Reused);
    let other = Plan { trace: false, ..plan.clone() };
    assert_eq!(event(&check, &other), Event::Started);
    assert_eq!(event(&check, &other), Event::Reused);
    assert_eq!(event(&check, &plan), Event::Started);
    check.how.fresh = true;
    assert_eq!(event(&check, &plan), Event::Started);
    check.how.fresh = false;
    let tensors = plan.destination.join("tensors.safetensors");
    let mut bytes = std::fs::read(&tensors).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&tensors, bytes).unwrap();
    assert_eq!(event(&check, &plan), Event::Started, "a damaged recording is made again");
}

#[test]
fn the_reference_comes_from_the_cache_in_another_directory() {
    let mut check = Check1::new(serving_program);
    check.how.cache = Some(Cache::at(check.dir.path().join("cache")));
    let first = check.plan("reference@f32");
    let second = Plan { destination: check.dir.path().join("other/reference"), ..first.clone() };
    assert_eq!(check.run(std::slice::from_ref(&first)).1[0].1, Event::Started);
    let (outcomes, events) = check.run(std::slice::from_ref(&second));
    assert_eq!(events[0].1, Event::Reused);
    outcomes[0].recording().unwrap().verify().unwrap();
    assert!(second.destination.join("recording.json").exists());
    // A damaged entry is no entry.
    let key = first.key(&check.prepared.subject, &build_identity(&check.how.binary));
    let entry = check.dir.path().join("cache/reference").join(key).join("tensors.safetensors");
    std::fs::remove_file(&entry).unwrap();
    std::fs::write(&entry, "x").unwrap();
    std::fs::remove_dir_all(&second.destination).unwrap();
    assert_eq!(check.run(&[second]).1[0].1, Event::Started);
    // Other targets are not kept.
    let kept = std::fs::read_dir(check.dir.path().join("cache/reference")).unwrap().count();
    check.run(&[check.plan("candle:cpu@f32")]);
    assert_eq!(std::fs::read_dir(check.dir.path().join("cache/reference")).unwrap().count(), kept);
}

#[test]
fn a_target_that_dies_is_an_outcome_and_the_others_are_whole() {
    let check = Check1::new(serving_program);
    let cases = [
        ("abort", Ended::Signal { number: libc::SIGABRT }),
        ("kill", Ended::Signal { number: libc::SIGKILL }),
        ("exit:7", Ended::Exit { code: 7 }),
        ("exit:0", Ended::Exit { code: 0 }),
    ];
    check.run(&[check.plan("candle:cpu@f32")]);
    assert!(check.plan("candle:cpu@f32").destination.exists());
    for (fault, expected) in cases {
        let dying = Plan { plant: Some(fault.parse().unwrap()), ..check.plan("candle:cpu@f32") };
        let (outcomes, _) = check.run(&[dying, check.plan("candle:cpu@f64")]);
        let Outcome::Died { ended, stage, usage, .. } = &outcomes[0] else { panic!("{:?}", outcomes[0]) };
        assert_eq!((*ended, *stage), (expected, Stage::Bare), "{fault}");
        assert!(usage.wall_s > 0.0);
        outcomes[1].recording().unwrap().verify().unwrap();
        assert!(
            !check.plan("candle:cpu@f32").destination.exists(),
            "{fault} left a recording, or an older one"
        );
    }
}

#[test]
fn a_target_that_hangs_is_killed() {
    let mut check = Check1::new(serving_program);
    check.how.silence = Some(Duration::from_secs(2));
    let hanging = Plan { plant: Some("hang".parse().unwrap()), ..check.plan("candle:cpu@f32") };
    let (outcomes, _) = check.run(&[hanging]);
    assert!(matches!(outcomes[0], Outcome::Died { ended: Ended::TimedOut { .. }, .. }), "{:?}", outcomes[0]);
}

/// Not a test of its own: a process that supervises one plan by the program in
/// `PARITY_TEST_PROGRAM`, and exits with 42 if it was interrupted.
#[test]
fn supervises_until_it_is_interrupted() {
    let Some(program) = std::env::var_os("PARITY_TEST_PROGRAM") else { return };
    let dir = tempfile::tempdir().unwrap();
    let prepared = Prepared::load(&fixture("mlp-tiny")).unwrap();
    let plans = [plan("candle:cpu@f32", dir.path())];
    let result = supervise(&plans, &prepared, &supervision(program.into()), &mut |_, _| {});
    drop(dir);
    std::process::exit(if matches!(result, Err(RunError::Interrupted { .. })) { 42 } else { 1 });
}

#[test]
fn a_signal_ends_the_child_and_then_the_supervision() {
    let wait_for = |condition: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !condition() {
            assert!(began.elapsed() < Duration::from_mins(1), "it never came");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    for (script, number) in [("exec sleep 600", libc::SIGINT), ("trap '' TERM INT; sleep 600", libc::SIGTERM)]
    {
        let dir = tempfile::tempdir().unwrap();
        let told = dir.path().join("pid");
        let program = program(dir.path(), &format!("echo $$ > {}\n{script}", told.display()));
        let mut supervisor = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "run::tests::supervises_until_it_is_interrupted", "--nocapture"])
            .env("PARITY_TEST_PROGRAM", program)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let child = || std::fs::read_to_string(&told).unwrap_or_default().trim().to_owned();
        wait_for(&|| !child().is_empty());
        process::signal(supervisor.id(), number);
        assert_eq!(supervisor.wait().unwrap().code(), Some(42), "{script}");
        let alive = || Path::new("/proc").join(child()).exists();
        assert!(!cfg!(target_os = "linux") || !alive(), "the child outlived it: {script}");
    }
}

#[test]
fn what_an_absent_or_failing_target_says_is_its_outcome() {
    let check = Check1::new(serving_program);
    let (outcomes, _) = check.run(&[check.plan(ABSENT)]);
    let Outcome::Absent { reason, .. } = &outcomes[0] else { panic!("{:?}", outcomes[0]) };
    assert!(reason.contains(without_libtorch()));
    let mut plan = check.plan("candle:cpu@f32");
    plan.subject.model = "/nowhere".into();
    let (outcomes, _) = check.run(&[plan]);
    let Outcome::Failed { reason, stage, .. } = &outcomes[0] else { panic!("{:?}", outcomes[0]) };
    assert!(reason.contains("/nowhere") && *stage == Stage::Prepare, "{reason}");
}

#[test]
fn a_claim_without_a_recording_is_no_result() {
    let done = r#"echo '{"message":"done","peak_bytes":1}'"#;
    let check = Check1::new(|dir| program(dir, done));
    let (outcomes, _) = check.run(&[check.plan("candle:cpu@f32")]);
    assert!(matches!(outcomes[0], Outcome::Failed { .. }), "{:?}", outcomes[0]);
    let check = Check1::new(|dir| program(dir, "exit 0"));
    let (outcomes, _) = check.run(&[check.plan("candle:cpu@f32")]);
    assert!(matches!(outcomes[0], Outcome::Died { ended: Ended::Exit { code: 0 }, .. }), "{:?}", outcomes[0]);
}

#[test]
fn environment_switches_reach_the_target_and_its_recording() {
    let check = Check1::new(serving_program);
    let variable = ("PYTORCH_ENABLE_MPS_FALLBACK".to_owned(), Some("1".to_owned()));
    let plan = Plan { environment: BTreeMap::from([variable]), ..check.plan("candle:cpu@f32") };
    let (outcomes, _) = check.run(&[plan]);
    let variables = &outcomes[0].recording().unwrap().manifest().environment.variables;
    assert_eq!(variables.get("PYTORCH_ENABLE_MPS_FALLBACK").map(String::as_str), Some("1"));
}

#[test]
fn a_recording_holds_no_path_of_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let recording = run(&plan("candle:cpu@f32", dir.path()));
    let text = std::fs::read_to_string(recording.path().join("recording.json")).unwrap();
    // Cargo puts the build directory into `LD_LIBRARY_PATH`: of that only the end is kept.
    for path in ["fixtures/mlp-tiny", "validation.safetensors", env!("CARGO_MANIFEST_DIR")] {
        assert!(!text.contains(path), "{path} is in the recording");
    }
    let manifest: &Manifest = recording.manifest();
    assert!(manifest.environment.identity.is_none());
}

#[test]
fn activation_gradients_are_recorded_where_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let all = |target: &str| {
        let plan = Plan { captures: Captures::ALL, evaluate: false, noise: None, ..plan(target, dir.path()) };
        run(&plan)
    };
    let (candle, reference) = (all("candle:cpu@f64"), all("reference@f64"));
    let rows: Vec<_> =
        reference.quantities().iter().filter(|q| q.kind == QuantityKind::ActivationGradient).collect();
    assert!(rows.len() > 2);
    for row in rows {
        let distance = distance(&values(&candle, &row.name), &values(&reference, &row.name));
        assert!(distance < 1e-12, "{}: {distance}", row.name);
    }
}
