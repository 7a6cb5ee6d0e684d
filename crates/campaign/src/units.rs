//! Times and sizes as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// `90s`, `10m`, `1h30m`, `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match humantime::parse_duration(text) {
            Ok(Duration::ZERO) => Err("no time at all".to_owned()),
            Ok(time) if time > LONGEST => Err("more than ten years".to_owned()),
            Ok(time) => Ok(Time(time)),
            Err(error) => Err(format!(
                "{error}; write a number with its unit, as in 90s, 10m or 1h30m"
            )),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = humantime::format_duration(self.0).to_string();
        f.write_str(&text.replace(' ', ""))
    }
}

/// Bytes: a number, alone or with K, M, G or T (of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let advice = || "write a number of bytes, alone or with K, M, G or T, as in 512M".to_owned();
        let (digits, shift) = UNITS
            .iter()
            .find_map(|&(unit, shift)| Some((text.strip_suffix([unit, unit.to_ascii_lowercase()])?, shift)))
            .unwrap_or((text, 0));
        let number: u64 = digits.parse().map_err(|_| advice())?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(advice)?;
        if bytes == 0 { Err(advice()) } else { Ok(Size(bytes)) }
    }
}

impl fmt::Display for Size {
    /// In the largest unit that holds it exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().rev().find(|(_, shift)| self.0.is_multiple_of(1 << shift)) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let seconds = |text: &str| text.parse::<Time>().map(|time| time.0.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("10m"), Ok(600));
        assert_eq!(seconds("1h30m"), Ok(5400));
        for wrong in ["", "10", "m", "0s", "-1s", "ten minutes"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        for text in ["90s", "1h30m", "500ms"] {
            let time: Time = text.parse().unwrap();
            assert_eq!(time.to_string().parse(), Ok(time), "{text}");
        }
    }

    #[test]
    fn sizes() {
        let bytes = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(bytes("1000"), Ok(1000));
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("2g"), Ok(2 << 30));
        for wrong in ["", "G", "0", "-1", "1.5G", "99999999999999T", "4P"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        for text in ["1000", "64K", "2G", "1536M"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
    }
}
