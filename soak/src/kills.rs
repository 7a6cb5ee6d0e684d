//! crashproof killed at random moments: the program under test goes on or ends, and nothing is left behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::commands::absolute;
use crate::random::Random;

/// Stores to a mapped file until it is ended, for two seconds at the most.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 3;
    volatile long *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pm == MAP_FAILED)
        return 4;
    time_t end = time(0) + 2;
    while (time(0) < end)
        for (int i = 0; i < 512; i++)
            pm[i]++;
    return 0;
}
"#;

/// Kills a recording as often as said; says what was left behind.
pub fn kill_recordings(crashproof: &Path, times: u32, random: &mut Random) -> Result<Vec<String>, String> {
    let crashproof = &absolute(crashproof)?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (source, program) = (folder.path().join("stores.c"), folder.path().join("stores"));
    std::fs::write(&source, PROGRAM).map_err(|error| error.to_string())?;
    let compiled = Command::new("cc")
        .arg("-O1")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        return Err("cc cannot compile a small program".to_owned());
    }
    let mut wrong = Vec::new();
    for number in 0..times {
        let before = sessions();
        let pool = folder.path().join(format!("pool{number}"));
        let child = Command::new(crashproof)
            .args(["record", "-o"])
            .arg(folder.path().join("trace"))
            .arg("--")
            .arg(&program)
            .arg(&pool)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.map_err(|error| format!("cannot start {}: {error}", crashproof.display()))?;
        std::thread::sleep(Duration::from_millis(random.below(1500) as u64));
        let _ = child.kill();
        let _ = child.wait();
        // The program ends by itself two seconds after its start; the next recording removes what is left then.
        let deadline = Instant::now() + Duration::from_secs(6);
        while Instant::now() < deadline && sessions().difference(&before).next().is_some() {
            std::thread::sleep(Duration::from_millis(100));
            let mut next = Command::new(crashproof);
            next.args(["record", "-o", "/dev/null", "--", "true"]);
            let _ = next.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        if let Some(left) = sessions().difference(&before).next() {
            wrong.push(format!("kill {number} left {left} in /dev/shm"));
        }
    }
    Ok(wrong)
}

/// Files of recordings in shared memory.
fn sessions() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("crashproof-")).collect()
}
