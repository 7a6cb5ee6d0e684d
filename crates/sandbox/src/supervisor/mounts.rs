//! The table of mounts (`/proc/self/mountinfo`), as far as a process can see them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    id: u64,
    parent: u64,
    pub point: PathBuf,
    pub kind: String,
    pub read_only: bool,
}

/// The mounts that can be reached, each before those below it. Lines that cannot be read are left out.
pub(super) fn visible(mountinfo: &[u8]) -> Vec<Mount> {
    let all: Vec<Mount> = mountinfo.split(|&byte| byte == b'\n').filter_map(parse).collect();
    let root = all.iter().find(|mount| {
        mount.point == Path::new("/") && (mount.parent == mount.id || all.iter().all(|other| other.id != mount.parent))
    });
    let mut found = Vec::new();
    if let Some(root) = root {
        add(top(root, &all), &all, &mut found);
    }
    found
}

fn add(mount: &Mount, all: &[Mount], found: &mut Vec<Mount>) {
    found.push(mount.clone());
    let children: Vec<&Mount> = all
        .iter()
        .filter(|child| child.parent == mount.id && child.id != mount.id && child.point != mount.point)
        .collect();
    for (index, child) in children.iter().enumerate() {
        // A later mount at the same place or above hides it.
        let hidden = children[index + 1..]
            .iter()
            .any(|later| child.point.starts_with(&later.point));
        if !hidden {
            add(top(child, all), all, found);
        }
    }
}

/// What was mounted on top of it, at the same place.
fn top<'a>(mount: &'a Mount, all: &'a [Mount]) -> &'a Mount {
    let above = all
        .iter()
        .rev()
        .find(|other| other.parent == mount.id && other.id != mount.id && other.point == mount.point);
    above.map_or(mount, |above| top(above, all))
}

/// `24 27 0:6 / /dev rw,relatime shared:2 - devtmpfs devtmpfs rw,size=…`
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let point = PathBuf::from(unescape(fields.nth(2)?));
    let options = fields.next()?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8(rest.next()?.to_vec()).ok()?;
    let super_options = rest.nth(1)?;
    let read_only = |options: &[u8]| options.split(|&byte| byte == b',').any(|option| option == b"ro");
    Some(Mount {
        id,
        parent,
        point,
        kind,
        read_only: read_only(options) || read_only(super_options),
    })
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(text: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let octal = (text[at] == b'\\')
            .then(|| text.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                at += 4;
            }
            None => {
                bytes.push(text[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(text: &str) -> Vec<String> {
        visible(text.as_bytes())
            .iter()
            .map(|mount| format!("{} {}", mount.point.display(), mount.kind))
            .collect()
    }

    #[test]
    fn nested_stacked_and_hidden_mounts() {
        let table = "\
22 27 0:21 / /proc rw - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
24 27 0:6 / /dev rw shared:2 - devtmpfs devtmpfs rw
25 24 0:23 / /dev/shm rw - tmpfs one rw
30 25 0:27 / /dev/shm rw - ramfs two rw
40 27 0:50 / /mnt/a/b rw - xfs three rw
41 27 0:51 / /mnt/a rw - ext2 four rw
42 27 0:52 / /with\\040space ro master:3 - vfat five rw
";
        assert_eq!(
            points(table),
            [
                "/ ext4",
                "/proc proc",
                "/dev devtmpfs",
                "/dev/shm ramfs",
                "/mnt/a ext2",
                "/with space vfat"
            ]
        );
        assert!(visible(table.as_bytes())[5].read_only);
        assert!(!visible(table.as_bytes())[0].read_only);
    }

    #[test]
    fn damaged_tables_do_not_panic() {
        assert!(points("").is_empty());
        assert!(points("1 2 3\n\n- - -\n1 1 0:1 / /\\04").is_empty());
    }

    #[test]
    fn the_table_of_this_process() {
        let table = std::fs::read("/proc/self/mountinfo").unwrap();
        assert_eq!(visible(&table)[0].point, Path::new("/"));
    }
}
