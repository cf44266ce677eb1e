//! Numbers as a reader sees them.

/// A value with its unit. Times get the unit that suits them.
pub(crate) fn amount(value: f64, unit: &str) -> String {
    match unit {
        _ if value.is_nan() => digits(value),
        "us" if value.abs() >= 1e6 => amount(value / 1e6, "s"),
        "us" if value.abs() >= 1e3 => amount(value / 1e3, "ms"),
        "ms" if value.abs() >= 1e3 => amount(value / 1e3, "s"),
        "us" => format!("{} µs", digits(value)),
        "/s" | "" => digits(value),
        _ => format!("{} {unit}", digits(value)),
    }
}

/// Three significant digits, with a space between groups of three.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        return "not measured".to_owned();
    }
    if size >= 1000.0 {
        let scale = 10_f64.powf(size.log10().floor() - 2.0);
        return grouped(&format!("{:.0}", (value / scale).round() * scale));
    }
    let decimals = [(100.0, 0), (10.0, 1), (1.0, 2)].into_iter().find(|(from, _)| size >= *from);
    match decimals {
        _ if value == 0.0 => "0".to_owned(),
        Some((_, decimals)) => format!("{value:.decimals$}"),
        None if size >= 0.1 => format!("{value:.3}"),
        None => format!("{value:.2}"),
    }
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[test]
fn numbers_have_three_digits() {
    assert_eq!([0.0, 0.123, 1.0, 99.44, 804.3].map(digits), ["0", "0.123", "1.00", "99.4", "804"]);
    assert_eq!([26_620.0, 999.9, 107_306.7, 1_234_567.0].map(digits), ["26 600", "1000", "107 000", "1 230 000"]);
    assert_eq!([amount(2894.0, "us"), amount(991.0, "ms"), amount(12.1, "%")], ["2.89 ms", "991 ms", "12.1 %"]);
}
