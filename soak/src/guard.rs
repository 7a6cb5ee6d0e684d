//! Bounds on what one input may cost: an allocator that counts, and a watch that ends a run that hangs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What one input may allocate.
const MOST_MEMORY: usize = 1 << 30;
/// How long one input may take.
const MOST_TIME: Duration = Duration::from_secs(20);

static USED: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a limit beyond which the process ends with a message: an abort would lose the input.
pub struct Counting;

// SAFETY: passes everything on to the system's allocator; the counter does not influence what is returned.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        if used > MOST_MEMORY {
            give_up("took more than 1 GiB of memory");
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What is being run, for whoever has to end it.
struct Current {
    target: &'static str,
    input: Vec<u8>,
}

static CURRENT: Mutex<Option<Current>> = Mutex::new(None);
/// When the current input began, in milliseconds since the first; 0: none.
static BEGAN: AtomicU64 = AtomicU64::new(0);
static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Where an input is kept that a target did not survive. Starts the watch.
pub fn start(folder: PathBuf) {
    *FOLDER.lock().expect("nobody panics with it") = Some(folder);
    let first = first();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let began = BEGAN.load(Ordering::Acquire);
            if began != 0 && first.elapsed() > Duration::from_millis(began) + MOST_TIME {
                give_up("did not end within 20 s");
            }
        }
    });
}

fn first() -> Instant {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *FIRST.get_or_init(Instant::now)
}

/// Runs the target on the input. `Err`: it panicked; the input is kept.
pub fn run<T>(
    target: &'static str,
    input: &[u8],
    function: impl FnOnce() -> T + std::panic::UnwindSafe,
) -> Result<T, String> {
    *CURRENT.lock().expect("nobody panics with it") = Some(Current {
        target,
        input: input.to_vec(),
    });
    BEGAN.store(first().elapsed().as_millis() as u64 + 1, Ordering::Release);
    let result = std::panic::catch_unwind(function);
    BEGAN.store(0, Ordering::Release);
    result.map_err(|_| format!("{target}: panicked; input kept as {}", keep()))
}

/// Writes the current input to a file of its own; gives its name.
fn keep() -> String {
    let current = CURRENT.lock();
    let Ok(Some(current)) = current.as_deref() else {
        return "nothing".to_owned();
    };
    let folder = FOLDER.lock().ok().and_then(|folder| folder.clone());
    let name = format!("soak-{}-{}", current.target, std::process::id());
    let path = folder.unwrap_or_else(std::env::temp_dir).join(name);
    match std::fs::write(&path, &current.input) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("nothing ({error})"),
    }
}

fn give_up(why: &str) -> ! {
    // The message allocates, too.
    USED.store(0, Ordering::Relaxed);
    let target = CURRENT
        .lock()
        .ok()
        .and_then(|current| current.as_ref().map(|current| current.target));
    eprintln!("soak: {}: {why}; input kept as {}", target.unwrap_or("?"), keep());
    std::process::exit(1)
}
