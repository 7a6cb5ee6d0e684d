//! A worker: one sandbox, the image of its PM files, and runs of the recovery on it.
//!
//! After a run everything is put back. Pages that the runtime saw written are copied from what they should hold. A file whose
//! time or size says that a system call changed it, and every file after a run that the runtime did not see all of, is
//! compared as a whole. So is every file every few seconds, as a check of the runtime: [`Worker::doubtful`].

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crashproof_wire::recovery::{
    File as WireFile, MAGIC, MAX_ARGUMENTS, MAX_FILES, MAX_FINE, MAX_LOG, MAX_MAPPINGS, TRACK_NOTHING, TRACK_READS,
    TRACK_WRITES, UNWATCHED_CONCURRENT, VERSION, page_unit, parse_unit,
};

use crate::error::SandboxError;
use crate::image::Image;
use crate::options::{Command, Options, Track};
use crate::protocol::{CommandLine, Config, Control, Parked, Ran, Reply, Request, Status};
use crate::recovery::Shared;
use crate::run::{Ended, How, Run};
use crate::session::Session;
use crate::tracking::Tracking;
use crate::unopened::Unopened;

/// So often everything is compared, although the runtime watches.
const COMPARE_EVERY: Duration = Duration::from_secs(3);
/// Of large images less often: so that it takes no more than this part of the time.
const COMPARE_SHARE: u32 = 20;
/// A recovery that ends its server as often in a row is not parked any more.
const MAX_LOSSES: u32 = 3;
/// Another command is a recording, which is slower than what it records.
const OTHER_FACTOR: u32 = 20;
const OTHER_LEAST: Duration = Duration::from_secs(120);

/// One sandbox with its image. Dropped, it leaves nothing behind.
pub struct Worker {
    options: Options,
    sandbox: Sandbox,
    images: Vec<Image>,
    /// Where each file is, if it is there.
    places: Vec<Option<PathBuf>>,
    how: How,
    /// Which commands are to be parked: the recovery, the checker.
    park: [bool; 2],
    /// The servers need not be started again.
    parked: bool,
    losses: u32,
    time: Duration,
    /// As the runtime is told them.
    arguments: Vec<u8>,
    /// Room for files that the sandbox has.
    allowed: u64,
    /// Compare everything after each run.
    safe: bool,
    tracking: Tracking,
    compared: Instant,
    compare_every: Duration,
    runs_since: u64,
    doubtful: u64,
    /// Somebody has opened a PM file.
    looked: bool,
    /// Pages put back until the last run.
    restored: u64,
}

/// What a sandbox has that a new one has anew.
struct Sandbox {
    session: Session,
    control: Vec<File>,
    shared: Shared,
    /// What the output file holds.
    output: Vec<u8>,
    /// `None`: somebody may have opened the output file.
    unopened: Option<Unopened>,
}

impl Sandbox {
    fn start(options: &Options, allowed: u64) -> Result<Self, SandboxError> {
        let config = Config {
            cwd: options.directory.clone().into(),
            folders: folders(options),
            disk: allowed,
            memory: options.limits.memory,
            runtime: std::path::absolute(&options.runtime)
                .unwrap_or_else(|_| options.runtime.clone())
                .into(),
            recover: Some(command_line(&options.recover)),
            check: options.check.as_ref().map(command_line),
        };
        let (session, descriptors) = Session::start(&options.supervisor, &options.environment, &config)?;
        Sandbox::new(session, descriptors, &options.supervisor)
    }

    fn new(session: Session, descriptors: Vec<OwnedFd>, supervisor: &Path) -> Result<Self, SandboxError> {
        if descriptors.len() != Control::ALL.len() {
            return Err(SandboxError::NoSupervisor {
                path: supervisor.into(),
            });
        }
        let control: Vec<File> = descriptors.into_iter().map(File::from).collect();
        let shared = Shared::map(control[Control::Recovery as usize].as_fd()).map_err(SandboxError::Socket)?;
        let unopened = Unopened::watch(control[Control::Output as usize].as_fd());
        Ok(Sandbox {
            unopened,
            session,
            control,
            shared,
            output: Vec::new(),
        })
    }
}

fn command_line(command: &Command) -> CommandLine {
    match command {
        Command::Direct(words) => CommandLine::Direct(words.clone()),
        Command::Shell(text) => CommandLine::Shell(text.clone()),
    }
}

/// Where commands are likely to write: beside the PM files, where they are started, and where temporary files go.
fn folders(options: &Options) -> Vec<OsString> {
    let beside = options
        .files
        .iter()
        .filter_map(|file| file.path.parent().map(Path::to_path_buf));
    let variables = ["TMPDIR", "HOME"]
        .iter()
        .filter_map(std::env::var_os)
        .map(PathBuf::from);
    let mut folders: Vec<OsString> = beside
        .chain(variables)
        .chain([options.directory.clone(), "/var/tmp".into(), "/tmp".into()])
        // A folder that is not there yet is made in the one that is.
        .filter_map(|folder| folder.ancestors().find_map(|folder| folder.canonicalize().ok()))
        .map(PathBuf::into_os_string)
        .collect();
    folders.sort_unstable();
    folders.dedup();
    folders
}

/// Whether sandboxes can be made here, with this program as the supervisor.
pub fn available() -> Result<(), SandboxError> {
    let supervisor = std::env::current_exe().map_err(|source| SandboxError::Spawn {
        path: "crashproof".into(),
        source,
    })?;
    let config = Config {
        cwd: "/".into(),
        folders: Vec::new(),
        disk: 1 << 20,
        memory: u64::MAX,
        runtime: "/dev/null".into(),
        recover: None,
        check: None,
    };
    Session::start(&supervisor, &[], &config).map(drop)
}

impl Worker {
    /// Builds the sandbox, with files that hold zeroes, and starts the fork servers.
    pub fn start(options: &Options) -> Result<Worker, SandboxError> {
        if options.files.len() > MAX_FILES {
            return Err(SandboxError::TooManyFiles {
                count: options.files.len(),
                limit: MAX_FILES,
            });
        }
        let images = options
            .files
            .iter()
            .map(|file| Image::new(&file.path, file.size))
            .collect::<Result<Vec<_>, _>>()?;
        let allowed = room(options, &images);
        let mut worker = Worker {
            sandbox: Sandbox::start(options, allowed)?,
            places: options
                .files
                .iter()
                .map(|file| file.present.then(|| file.path.clone()))
                .collect(),
            options: options.clone(),
            images,
            how: How::Started(String::new()),
            park: [false; 2],
            parked: false,
            losses: 0,
            time: options.limits.time,
            arguments: Vec::new(),
            allowed,
            safe: options.compare,
            tracking: Tracking::new(),
            compared: Instant::now(),
            compare_every: COMPARE_EVERY,
            runs_since: 0,
            doubtful: 0,
            looked: false,
            restored: 0,
        };
        worker.furnish()?;
        let direct = |command: &Command| matches!(command, Command::Direct(_));
        if options.no_server {
            worker.how = How::Started("it was asked for".into());
        } else {
            worker.park = [direct(&options.recover), options.check.as_ref().is_some_and(direct)];
            worker.how = match worker.park[0] {
                true => How::Parked,
                false => How::Started("it is a shell command".into()),
            };
        }
        worker.park()?;
        Ok(worker)
    }

    /// How the recovery is started for each run.
    pub fn how(&self) -> &How {
        &self.how
    }

    /// What the image holds. Beyond the end of the file it is zero.
    pub fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) {
        self.images[file].read(offset, buffer);
    }

    /// Cut off at the end of the file.
    pub fn write(&mut self, file: usize, offset: u64, data: &[u8]) {
        self.images[file].write(offset, data);
    }

    /// What is cut off reads as zero if the file grows again.
    pub fn resize(&mut self, file: usize, size: u64) -> Result<(), SandboxError> {
        self.images[file].resize(size)?;
        let needed = room(&self.options, &self.images);
        if needed > self.allowed {
            self.allowed = needed;
            self.sandbox
                .session
                .limit(self.options.limits.memory.saturating_add(needed));
            let request = Request::Allow { disk: needed };
            self.sandbox
                .session
                .request(&request, None, "making room for a PM file")?;
        }
        Ok(())
    }

    /// The file is there under this path, or (`None`) is not there. Another file under the path is then not there any more.
    pub fn place(&mut self, file: usize, path: Option<&Path>) -> Result<(), SandboxError> {
        if self.places[file].as_deref() == path {
            return Ok(());
        }
        if let Some(replaced) =
            path.and_then(|path| self.places.iter().position(|place| place.as_deref() == Some(path)))
        {
            self.places[replaced] = None;
            self.put(replaced)?;
        }
        self.places[file] = path.map(Path::to_path_buf);
        self.put(file)
    }

    /// For the runs from now on.
    pub fn set_time_limit(&mut self, time: Duration) {
        self.time = time;
    }

    /// What the recovery is given after its own arguments, in the runs from now on.
    pub fn set_arguments(&mut self, arguments: &[OsString]) -> Result<(), SandboxError> {
        let mut given = Vec::new();
        for argument in arguments {
            given.extend_from_slice(argument.as_bytes());
            given.push(0);
        }
        let zero_bytes = given.iter().filter(|&&byte| byte == 0).count();
        if given.len() > MAX_ARGUMENTS || zero_bytes != arguments.len() {
            return Err(SandboxError::Arguments { limit: MAX_ARGUMENTS });
        }
        if given != self.arguments {
            self.arguments = given;
            self.pass_arguments();
        }
        Ok(())
    }

    fn pass_arguments(&mut self) {
        let shared = self.sandbox.shared.get_mut();
        shared.arguments_len = self.arguments.len() as u32;
        shared.arguments[..self.arguments.len()].copy_from_slice(&self.arguments);
    }

    /// Runs the recovery, and the checker if there is one, on the image. `output` is what the program had output.
    pub fn run(&mut self, output: &[u8]) -> Result<Run, SandboxError> {
        if !self.parked {
            self.park()?;
        }
        let mut alone = false;
        let mut rebuilt = false;
        loop {
            match self.run_once(output, alone) {
                Ok((run, false)) => {
                    if !alone {
                        self.losses = 0;
                    }
                    return Ok(run);
                }
                Ok((_, true)) => {
                    self.losses += 1;
                    if self.losses == MAX_LOSSES {
                        self.park = [false; 2];
                        self.how = How::Started("it ends the process that started it".into());
                    }
                    // The supervisor is process 1, which cannot be killed from the inside.
                    alone = true;
                }
                Err(SandboxError::Ended { .. }) if !rebuilt => {
                    rebuilt = true;
                    self.rebuild()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One run, and everything put back. True: a server was lost, and the result is none.
    fn run_once(&mut self, output: &[u8], alone: bool) -> Result<(Run, bool), SandboxError> {
        self.prepare(output)?;
        let request = Request::Run { alone, time: self.time };
        let (reply, _) = self
            .sandbox
            .session
            .request(&request, Some(self.time * 2), "running the recovery")?;
        let Reply::Ran(ran) = reply else {
            return Err(self.confused());
        };
        let mut run = Run {
            recovery: self.ended(ran.recovery, Control::Stdout, Control::Stderr)?,
            check: None,
            touched: None,
            wrote: false,
            output_unread: false,
            looked: None,
        };
        self.sandbox.unopened = self.sandbox.unopened.take().and_then(Unopened::still);
        run.output_unread = self.sandbox.unopened.is_some();
        // All of them, so that each forgets what it was told.
        let there: Vec<bool> = self.images.iter_mut().filter_map(Image::looked_at).collect();
        self.looked |= there.contains(&true);
        run.looked = (self.looked || !there.is_empty()).then_some(self.looked);
        if ran.check.is_some() {
            run.check = Some(self.ended(ran.check, Control::CheckStdout, Control::CheckStderr)?);
        }
        let watched = !ran.void && self.all_watched(&ran);
        let unwatched = self.sandbox.shared.get().unwatched.load(Ordering::Acquire);
        if watched && unwatched == 0 && self.options.track == Track::Reads {
            run.touched = self.touched();
        }
        let logged = watched && unwatched & !UNWATCHED_CONCURRENT == 0 && !self.compares();
        run.wrote = self.put_back(&ran, logged)?;
        self.adapt(logged)?;
        self.runs_since += 1;
        if logged && !self.safe && self.compared.elapsed() >= self.compare_every {
            self.compare()?;
        }
        Ok((run, ran.void))
    }

    /// Whether what a run writes is not noted but found by comparing.
    fn compares(&self) -> bool {
        self.options.track == Track::Writes && !self.safe && self.tracking.compares()
    }

    /// For the runtime.
    fn track(&self) -> u32 {
        match self.options.track {
            Track::Reads => TRACK_READS,
            Track::Writes if self.compares() => TRACK_NOTHING,
            Track::Writes => TRACK_WRITES,
        }
    }

    /// After a run: the better way to find what the next ones write.
    fn adapt(&mut self, logged: bool) -> Result<(), SandboxError> {
        let restored: u64 = self.images.iter().map(Image::restored).sum();
        let changed = restored - std::mem::replace(&mut self.restored, restored);
        let written = match logged {
            true => u64::from(self.sandbox.shared.get().written_count.load(Ordering::Relaxed)),
            false => changed,
        };
        let mut held = Ok(0);
        self.tracking.ran(written, || {
            held = self.images.iter().map(Image::held_pages).sum();
            *held.as_ref().unwrap_or(&u64::MAX)
        });
        held.map(drop)
    }

    /// Compares the whole image with what it should be. If a run changed it and the runtime did not see that, the runs since the
    /// last comparison are doubtful, and from now on the image is compared after each run.
    pub fn compare(&mut self) -> Result<(), SandboxError> {
        let begin = Instant::now();
        let mut changed = false;
        for image in &mut self.images {
            changed |= image.restore_whole()?;
        }
        self.compare_every = COMPARE_EVERY.max(begin.elapsed() * COMPARE_SHARE);
        if changed {
            self.safe = true;
            self.doubtful = self.doubtful.max(self.runs_since);
        }
        self.compared = Instant::now();
        self.runs_since = 0;
        Ok(())
    }

    /// So many runs, the last ones, may have seen what runs before them had left, and should be repeated. Asking resets it.
    pub fn doubtful(&mut self) -> u64 {
        std::mem::take(&mut self.doubtful)
    }

    /// Runs another command once on the image, unwatched; the folder `share` of this machine is there in the sandbox under the same
    /// path, and what is written to it stays. Then everything else is put back.
    pub fn run_other(&mut self, command: &Command, share: &Path) -> Result<Ended, SandboxError> {
        self.prepare(&self.sandbox.output.clone())?;
        let time = (self.time * OTHER_FACTOR).max(OTHER_LEAST);
        let request = Request::RunOther {
            command: command_line(command),
            share: share.into(),
            time,
        };
        let doing = "running another command";
        let (reply, _) = self.sandbox.session.request(&request, Some(time), doing)?;
        let Reply::Ran(ran) = reply else {
            return Err(self.confused());
        };
        let ended = self.ended(ran.recovery, Control::Stdout, Control::Stderr)?;
        self.put_back(&ran, false)?;
        Ok(ended)
    }

    /// Empties the logs, and says what the program had output.
    fn prepare(&mut self, output: &[u8]) -> Result<(), SandboxError> {
        let track = self.track();
        let shared = self.sandbox.shared.get_mut();
        shared.track = track;
        shared.started.store(0, Ordering::Relaxed);
        shared.unwatched.store(0, Ordering::Relaxed);
        shared.written_count.store(0, Ordering::Relaxed);
        shared.touched_count.store(0, Ordering::Release);
        if self.sandbox.output != output {
            let file = &self.sandbox.control[Control::Output as usize];
            let same = self
                .sandbox
                .output
                .iter()
                .zip(output)
                .take_while(|(a, b)| a == b)
                .count();
            file.set_len(same as u64)
                .and_then(|()| file.write_all_at(&output[same..], same as u64))
                .map_err(SandboxError::Socket)?;
            self.sandbox.output.truncate(same);
            self.sandbox.output.extend_from_slice(&output[same..]);
        }
        Ok(())
    }

    fn all_watched(&self, ran: &Ran) -> bool {
        let direct = |command: &Command| matches!(command, Command::Direct(_));
        let statuses = [ran.recovery, ran.check];
        direct(&self.options.recover)
            && (ran.check.is_none() || self.options.check.as_ref().is_some_and(direct))
            && statuses.iter().flatten().all(|status| status.watched)
    }

    fn touched(&self) -> Option<Vec<u64>> {
        let shared = self.sandbox.shared.get();
        let count = shared.touched_count.load(Ordering::Acquire) as usize;
        let units = shared.touched.get(..count)?;
        Some(units.iter().map(|unit| unit.load(Ordering::Relaxed)).collect())
    }

    /// How the command ended, and what it printed.
    fn ended(&self, status: Option<Status>, stdout: Control, stderr: Control) -> Result<Ended, SandboxError> {
        let mut ended = Ended {
            stdout: self.printed(stdout)?,
            stderr: self.printed(stderr)?,
            ..Ended::default()
        };
        if let Some(status) = status {
            if status.over_memory {
                let limit = self.options.limits.memory >> 20;
                let note =
                    format!("crashproof: ended: its processes took more than {limit} MiB of memory (--memory)\n");
                ended.stderr.extend_from_slice(note.as_bytes());
            }
            ended.timed_out = status.timed_out;
            if !status.timed_out && libc::WIFEXITED(status.wait) {
                ended.status = Some(libc::WEXITSTATUS(status.wait));
            }
            if !status.timed_out && libc::WIFSIGNALED(status.wait) {
                ended.signal = Some(libc::WTERMSIG(status.wait));
            }
        }
        Ok(ended)
    }

    /// What was printed, and the file empty again.
    fn printed(&self, control: Control) -> Result<Vec<u8>, SandboxError> {
        let file = &self.sandbox.control[control as usize];
        let read = || {
            let len = file.metadata()?.len();
            if len == 0 {
                return Ok(Vec::new());
            }
            let mut bytes = vec![0; len.min(self.options.capture) as usize];
            file.read_exact_at(&mut bytes, 0)?;
            file.set_len(0)?;
            Ok(bytes)
        };
        read().map_err(SandboxError::Socket)
    }

    /// Puts back what a run did; `logged`: the runtime knows all of it. True: the image had been changed.
    fn put_back(&mut self, ran: &Ran, logged: bool) -> Result<bool, SandboxError> {
        if ran.hopeless.is_some() {
            self.rebuild()?;
            return Ok(true);
        }
        self.parked &= !ran.unparked;
        let mut wrote = !ran.lost_files.is_empty();
        for &file in &ran.lost_files {
            self.put(file)?;
        }
        let written = self.sandbox.shared.get().written_count.load(Ordering::Acquire) as usize;
        if self.safe || !logged || written > MAX_LOG {
            for image in &mut self.images {
                wrote |= image.restore_whole()?;
            }
            self.compared = Instant::now();
            self.runs_since = 0;
            return Ok(wrote);
        }
        for unit in &self.sandbox.shared.get().written[..written] {
            let (file, offset, _) = parse_unit(unit.load(Ordering::Relaxed));
            if let Some(image) = self.images.get_mut(file as usize) {
                wrote |= image.restore_page(offset);
            }
        }
        for image in &mut self.images {
            wrote |= image.restore_if_disturbed()?;
        }
        Ok(wrote)
    }

    /// A new sandbox with the same image.
    fn rebuild(&mut self) -> Result<(), SandboxError> {
        for image in &mut self.images {
            image.detach();
        }
        self.sandbox = Sandbox::start(&self.options, self.allowed)?;
        self.parked = false;
        self.furnish()?;
        self.park()
    }

    /// Fills a new sandbox: the PM files, and what the runtime is told.
    fn furnish(&mut self) -> Result<(), SandboxError> {
        let options = &self.options;
        let mut fine: Vec<u64> = options
            .fine
            .iter()
            .map(|&(file, offset)| page_unit(file as u32, offset))
            .collect();
        fine.sort_unstable();
        fine.dedup();
        // Without the rest, pages are not told apart further, and mappings not put at their old addresses.
        fine.truncate(MAX_FINE);
        let mappings = &options.mappings[..options.mappings.len().min(MAX_MAPPINGS)];
        let track = self.track();
        let shared = self.sandbox.shared.get_mut();
        shared.magic = MAGIC;
        shared.version = VERSION;
        shared.track = track;
        shared.file_count = options.files.len() as u32;
        shared.mapping_count = mappings.len() as u32;
        shared.mappings[..mappings.len()].copy_from_slice(mappings);
        shared.fine_count = fine.len() as u32;
        shared.fine[..fine.len()].copy_from_slice(&fine);
        self.pass_arguments();
        self.hide()?;
        for file in 0..self.images.len() {
            self.put(file)?;
        }
        Ok(())
    }

    fn hide(&mut self) -> Result<(), SandboxError> {
        for path in &self.options.hidden {
            let path = path.clone().into_os_string();
            self.sandbox
                .session
                .request(&Request::Hide { path }, None, "hiding a file")?;
        }
        Ok(())
    }

    /// Has the supervisor put the file where it belongs, or away, and fills it.
    fn put(&mut self, file: usize) -> Result<(), SandboxError> {
        self.images[file].detach();
        let path = self.places[file].as_ref().map(|path| path.clone().into_os_string());
        let request = Request::Place { file, path };
        let (_, descriptors) = self.sandbox.session.request(&request, None, "placing a PM file")?;
        if let Some(descriptor) = descriptors.into_iter().next() {
            self.images[file].attach(descriptor.into())?;
        }
        // Device 0 is no file's.
        let (dev, ino) = self.images[file].identity().unwrap_or((0, 0));
        self.sandbox.shared.get_mut().files[file] = WireFile { dev, ino };
        Ok(())
    }

    /// Starts the fork servers.
    fn park(&mut self) -> Result<(), SandboxError> {
        self.parked = true;
        let [recover, check] = self.park;
        if !recover && !check {
            return Ok(());
        }
        let request = Request::Park { recover, check };
        let (reply, _) = self
            .sandbox
            .session
            .request(&request, None, "starting the fork server")?;
        let Reply::Parked { recover, check, left } = reply else {
            return Err(self.confused());
        };
        let cannot = |parked: &Option<Parked>| matches!(parked, Some(Parked::Cannot(_)));
        self.park[0] &= !cannot(&recover);
        self.park[1] &= !cannot(&check);
        let ran_instead = cannot(&recover) || cannot(&check);
        if let Some(Parked::Cannot(reason)) = recover {
            self.how = How::Started(reason);
        }
        for control in [
            Control::Stdout,
            Control::Stderr,
            Control::CheckStdout,
            Control::CheckStderr,
        ] {
            self.printed(control)?;
        }
        if ran_instead || left.unparked {
            self.put_back(&left, false)?;
        }
        Ok(())
    }

    fn confused(&self) -> SandboxError {
        SandboxError::NoSupervisor {
            path: self.options.supervisor.clone(),
        }
    }
}

/// What the sandbox's files may take: what the recovery may write, and the PM files.
fn room(options: &Options, images: &[Image]) -> u64 {
    let files = images.iter().map(|image| image.size().next_multiple_of(1 << 20));
    files.fold(options.limits.disk, u64::saturating_add)
}
