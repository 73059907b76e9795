//! Each kind of fault, planted into one operator of one target through the real binary,
//! turns the check red; and the same check without it is green.

use super::{CANDLE, Checked, MLP, VIT};

fn planted(model: &str, fault: &str) -> Checked {
    Checked::new(model, &["--target", CANDLE, "--plant", &format!("{fault}@{CANDLE}")])
}

/// Exit code 1, the named row is outside with this cause, and it is not the only row.
fn is_caught(checked: &Checked, quantity: &str, cause: &str) {
    assert_eq!(checked.code(), 1, "{}\n{}", checked.stdout(), checked.stderr());
    let row = checked.row(quantity);
    assert_eq!((row["verdict"].as_str(), row["cause"].as_str()), (Some("outside"), Some(cause)), "{row:#}");
}

#[test]
fn without_a_fault_both_fixtures_are_green() {
    for model in [MLP, VIT] {
        let checked = Checked::new(model, &["--target", CANDLE]);
        assert_eq!(checked.code(), 0, "{}\n{}", checked.stdout(), checked.stderr());
        let counts = &checked.table()["counts"];
        assert!(counts["within"].as_u64() > Some(10));
        assert_eq!(counts["outside"], 0);
        assert_eq!(counts["missing"], 0);
        assert_eq!(counts["unchecked"], 0);
    }
}

#[test]
fn a_doubled_weight_gradient_is_outside_and_nothing_else_is() {
    let checked = planted(VIT, "double-gradient:classifier.weight");
    is_caught(&checked, "gradient/classifier.weight", "deviation");
    assert_eq!(checked.rows_with("outside"), ["gradient/classifier.weight"]);
}

#[test]
fn a_dropped_gradient_is_severed_although_the_loss_agrees() {
    let checked = planted(VIT, "drop-gradient:classifier.bias");
    is_caught(&checked, "gradient/classifier.bias", "gradient-severed");
    assert_eq!(checked.row("loss")["verdict"], "within");
}

#[test]
fn a_zero_gradient_is_not_a_missing_one() {
    let checked = planted(MLP, "zero-gradient:layers.1.weight");
    is_caught(&checked, "gradient/layers.1.weight", "gradient-zero");
}

#[test]
fn one_element_that_is_nan_is_outside() {
    let checked = planted(VIT, "nan");
    assert_eq!(checked.code(), 1);
    assert_eq!(checked.row("logits")["cause"], "non-finite");
}

#[test]
fn an_infinity_is_outside_whatever_its_sign() {
    for fault in ["inf", "neg-inf"] {
        let checked = planted(VIT, fault);
        assert_eq!(checked.code(), 1, "{fault}");
        assert!(checked.table()["counts"]["outside"].as_u64() > Some(0));
    }
}

#[test]
fn a_transposed_activation_is_outside() {
    let checked = planted(VIT, "transpose");
    assert_eq!(checked.code(), 1);
    assert_eq!(checked.row("logits")["verdict"], "outside");
}

#[test]
fn a_truncated_output_is_a_difference_of_shape() {
    let checked = planted(MLP, "truncate:logits");
    is_caught(&checked, "logits", "shape");
}

#[test]
fn half_precision_accumulation_in_one_product_is_outside() {
    let checked = planted(VIT, "half-accumulation");
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
}

#[test]
fn a_scale_error_of_a_ten_thousandth_is_outside_in_f32() {
    let checked = planted(VIT, "scale:1e-4");
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
}

#[test]
fn a_target_that_ran_elsewhere_is_invalid_not_passed() {
    let checked = planted(MLP, "device:metal:0");
    assert_eq!(checked.code(), 1);
    assert_eq!(checked.row("target/device")["verdict"], "invalid");
}

#[test]
fn a_target_without_tensors_is_incomplete_not_passed() {
    let checked = planted(MLP, "no-tensors");
    assert_eq!(checked.code(), 4, "{}", checked.stdout());
    assert_eq!(checked.table()["counts"]["within"], 0);
    assert!(checked.table()["counts"]["missing"].as_u64() > Some(5));
}

#[test]
fn a_process_that_dies_is_a_row_that_names_target_and_signal() {
    let other = "candle:cpu@f64";
    for (fault, word) in [("abort", "SIGABRT"), ("kill", "SIGKILL"), ("exit:3", "3")] {
        let checked = Checked::new(
            MLP,
            &["--target", CANDLE, "--target", other, "--plant", &format!("{fault}@{CANDLE}")],
        );
        assert_eq!(checked.code(), 1, "{fault}");
        let table = checked.table();
        let row = table["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["cause"] == "died")
            .unwrap_or_else(|| panic!("{fault}: {}", checked.stdout()));
        assert_eq!(row["target"], CANDLE);
        assert!(row["notes"][0].as_str().unwrap().contains(word), "{row:#}");
        // The other target's recording is whole and was compared.
        assert!(table["targets"][1]["counts"]["within"].as_u64() > Some(5));
    }
}

#[test]
fn a_planted_fault_is_named_in_the_table() {
    let checked = planted(MLP, "scale:1e-2");
    assert!(checked.stdout().contains("planted on purpose"));
}
