//! Which programs of the corpus are drivers of operations, and of which kind their seeded bugs are. The bench reads this file, too.

use std::path::Path;

use crate::structure::{self, Structure};

/// The kinds of Witcher's table 4 (SOSP '21), as `corpus/drivers/kinds.txt` names them.
pub(crate) const KINDS: [&str; 6] = [
    "wrong-order",
    "missing-persist",
    "not-atomic",
    "resize-split",
    "missing-log",
    "use-after-free",
];

/// The programs of `corpus/drivers`, and those of `corpus/structures` that `-DDRIVER` makes one; without bugs that only a verifier sees.
pub(crate) fn drivers() -> Result<Vec<Structure>, String> {
    let mut drivers = Vec::new();
    for folder in ["drivers", "structures"] {
        for mut structure in structure::in_folder(folder)? {
            let text = read(&structure.source)?;
            if folder == "structures" && !text.contains("kv.h\"") && !text.contains("#ifdef DRIVER") {
                continue;
            }
            let unseen = text.lines().filter(|line| line.contains("Output does not show "));
            let unseen: String = unseen.collect();
            structure.bugs.retain(|(bug, _)| !unseen.contains(bug.as_str()));
            drivers.push(structure);
        }
    }
    Ok(drivers)
}

pub(crate) fn needs_pmemobj(structure: &Structure) -> Result<bool, String> {
    Ok(read(&structure.source)?.contains("libpmemobj.h"))
}

/// Of which kind each bug is: program, bug, kind.
pub(crate) fn kinds() -> Result<Vec<[String; 3]>, String> {
    let path = structure::corpus().join("drivers/kinds.txt");
    let text = read(&path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    lines
        .map(|(index, line)| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let words = <[String; 3]>::try_from(words).ok();
            words
                .filter(|[_, _, kind]| KINDS.contains(&kind.as_str()))
                .ok_or_else(|| {
                    format!(
                        "{}:{}: a line is: program, bug, one of {KINDS:?}",
                        path.display(),
                        index + 1
                    )
                })
        })
        .collect()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
