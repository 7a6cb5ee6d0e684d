//! One record of the log as text.

/// A flush is imported line by line, so that a damaged size would take for ever.
const MAX_FLUSH: u64 = 1 << 30;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Start,
    Stop,
    Store {
        address: u64,
        value: u64,
        size: u64,
        frames: Vec<&'a str>,
    },
    Flush {
        address: u64,
        size: u64,
    },
    Fence,
    DeepSync {
        address: u64,
        size: u64,
    },
    RegisterFile {
        path: &'a str,
        address: u64,
        size: u64,
        offset: u64,
    },
    /// Of the program's own.
    Marker(&'a str),
}

impl<'a> Record<'a> {
    /// What is wrong with the text, if something is.
    pub(super) fn parse(text: &'a str) -> Result<Record<'a>, String> {
        let mut fields = text.split(';');
        let name = fields.next().unwrap_or_default();
        let fields: Vec<&str> = fields.collect();
        let count = |wanted: usize, form: &str| match fields.len() {
            n if n == wanted => Ok(()),
            n => Err(format!("{name} has {n} fields, and needs {wanted}: {form}")),
        };
        match name {
            "START" => count(0, "START").map(|()| Record::Start),
            "STOP" => count(0, "STOP").map(|()| Record::Stop),
            "FENCE" => count(0, "FENCE").map(|()| Record::Fence),
            "STORE" => {
                let [address, value, size, frames @ ..] = &fields[..] else {
                    return Err(format!(
                        "STORE has {} fields, and needs at least 3: STORE;address;value;size",
                        fields.len()
                    ));
                };
                let size = number("size", size)?;
                if !(1..=8).contains(&size) {
                    return Err(format!("a STORE of {size} bytes; pmemcheck writes 1 to 8"));
                }
                Ok(Record::Store {
                    address: number("address", address)?,
                    value: number("value", value)?,
                    size,
                    frames: frames.to_vec(),
                })
            }
            "FLUSH" | "DEEP_SYNC" => {
                count(2, &format!("{name};address;size"))?;
                let (address, size) = (number("address", fields[0])?, number("size", fields[1])?);
                if size > MAX_FLUSH {
                    return Err(format!(
                        "the size {size:#x} is more than one flush can have ({MAX_FLUSH:#x})"
                    ));
                }
                Ok(match name {
                    "FLUSH" => Record::Flush { address, size },
                    _ => Record::DeepSync { address, size },
                })
            }
            "REGISTER_FILE" => {
                count(4, "REGISTER_FILE;path;address;size;offset")?;
                Ok(Record::RegisterFile {
                    path: fields[0],
                    address: number("address", fields[1])?,
                    size: number("size", fields[2])?,
                    offset: number("offset", fields[3])?,
                })
            }
            _ if name.ends_with(".BEGIN") || name.ends_with(".END") => Ok(Record::Marker(name)),
            _ => Err(format!("{name:?} is no record of pmemcheck's store log")),
        }
    }
}

fn number(what: &str, text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| format!("the {what} {text:?} is not a hexadecimal number of at most 64 bits"))
}

/// A frame as Valgrind describes it: `0x1091A8: main (log.c:10)`, `0x484E00E: ??? (in /usr/lib/libpmem.so.1)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameText<'a> {
    pub address: u64,
    pub function: Option<&'a str>,
    pub file: Option<&'a str>,
    pub line: Option<u32>,
    pub module: Option<&'a str>,
}

impl<'a> FrameText<'a> {
    /// What is not understood is left out: a store without its place is still a store.
    pub(super) fn parse(text: &'a str) -> FrameText<'a> {
        let mut frame = FrameText::default();
        let mut rest = text.trim();
        if let Some((address, after)) = rest.split_once(": ")
            && let Ok(address) = number("address", address)
        {
            frame.address = address;
            rest = after;
        }
        let place = rest
            .strip_suffix(')')
            .and_then(|rest| rest.rfind(" (").map(|at| (&rest[..at], &rest[at + 2..])));
        let function = match place {
            Some((function, place)) => {
                match (place.strip_prefix("in "), place.rsplit_once(':')) {
                    (Some(module), _) => frame.module = Some(module),
                    (None, Some((file, line))) if line.parse::<u32>().is_ok() => {
                        frame.file = Some(file);
                        frame.line = line.parse().ok();
                    }
                    _ => frame.file = Some(place),
                }
                function
            }
            None => rest,
        };
        frame.function = Some(function).filter(|function| !function.is_empty() && *function != "???");
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_as_valgrind_writes_them() {
        let known = FrameText::parse("0x1091A8: ns::put(int, char) (src/log file.cpp:10)");
        assert_eq!(
            known,
            FrameText {
                address: 0x1091a8,
                function: Some("ns::put(int, char)"),
                file: Some("src/log file.cpp"),
                line: Some(10),
                module: None,
            }
        );
        let library = FrameText::parse("0x484E00E: ??? (in /usr/lib/libpmem.so.1.0.0)");
        assert_eq!(
            (library.function, library.module, library.file),
            (None, Some("/usr/lib/libpmem.so.1.0.0"), None)
        );
        assert_eq!(
            FrameText::parse("0x10: ???"),
            FrameText {
                address: 16,
                ..FrameText::default()
            }
        );
        for text in ["", ": ", " (", ")", "(:)", "0x: f (a:99999999999)", "é (é:1)"] {
            FrameText::parse(text);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, word) in [
            ("STORE;0x10;0x1", "at least 3"),
            ("STORE;0x10;0x1;0x10", "16 bytes"),
            ("STORE;ten;0x1;0x8", "address \"ten\""),
            ("STORE;0x10;0x11111111111111111;0x8", "64 bits"),
            ("FLUSH;0x10", "FLUSH;address;size"),
            ("FLUSH;0x5200040;0x4000000000000000", "more than one flush can have"),
            ("FENCE;1", "needs 0"),
            ("REGISTER_FILE;/a;0x1;0x2", "needs 4"),
            ("LOAD;0x1", "no record"),
        ] {
            let error = Record::parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert_eq!(Record::parse("put.BEGIN"), Ok(Record::Marker("put.BEGIN")));
    }
}
