//! Numbers, counted things and signals as text.

/// "1 store", "1,234 stores".
pub fn plural(count: u64, name: &str) -> String {
    if count == 1 {
        format!("1 {name}")
    } else {
        format!("{} {name}s", number(count))
    }
}

/// With a comma between groups of three digits.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// " (SIGSEGV)"; nothing for a signal that is not known by name.
pub fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        5 => " (SIGTRAP)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        14 => " (SIGALRM)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(1000), "1,000");
        assert_eq!(number(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(plural(1, "store"), "1 store");
        assert_eq!(plural(0, "store"), "0 stores");
    }
}
