//! What functions without bitcode do to pointers.
//!
//! Functions of libc, the C++ runtime and PMDK by what they are known to do. Any other may keep all that it is given, reach whatever can be
//! reached from there, and return any of it.

use std::borrow::Cow;

use llvm_sys::prelude::LLVMValueRef;

use super::values::constant_number;
use super::{Generator, THROWN, UNKNOWN_SIZE};
use crate::pointers::constraints::{Call, Constraint, Variable};
use crate::pointers::offsets::Shift;
use crate::pointers::{ObjectKind, POOL};

/// One thing that a function does. Numbers are of its arguments.
#[derive(Clone, Copy)]
enum Act {
    /// Returns new memory; as many bytes as the product of these arguments.
    New(&'static [usize]),
    /// Returns a mapping, of a file perhaps: it may hold pointers into itself from an earlier run.
    Map,
    /// Returns an argument.
    Argument(usize),
    /// Returns a pointer somewhere into what the argument points to.
    Inside(usize),
    /// Returns what is held there.
    Held(usize),
    /// Returns memory of its own, which holds pointers only into itself.
    Own,
    /// As `Own`, but memory that all functions of this name share.
    Shared(&'static str),
    Copy {
        to: usize,
        from: usize,
        length: Option<usize>,
    },
    /// Stores a pointer into what `from` points to where `at` points to.
    StoreInside {
        at: usize,
        from: usize,
    },
    StoreNew {
        at: usize,
    },
    /// Calls an argument; what that returns is put by under the name.
    Call {
        function: usize,
        arguments: &'static [Given],
        result: Option<&'static str>,
    },
    /// Puts an argument by under a name.
    Keep(usize, &'static str),
    /// Returns what was put by.
    Kept(&'static str),
    /// Stores it where the argument points to.
    StoreKept {
        at: usize,
        name: &'static str,
    },
}

#[derive(Clone, Copy)]
enum Given {
    Argument(usize),
    Inside(usize),
    Shared(&'static str),
    Kept(&'static str),
}

const THREADS: &str = "results of threads";
const SPECIFIC: &str = "thread-specific data";

const KNOWN: &[(&[Act], &str)] = &[
    (
        &[Act::New(&[0])],
        "malloc valloc pvalloc alloca _Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t \
        _ZnwmSt11align_val_t _ZnamSt11align_val_t _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t \
        __cxa_allocate_exception je_malloc mi_malloc tc_malloc",
    ),
    (&[Act::New(&[1])], "aligned_alloc memalign"),
    (&[Act::New(&[0, 1])], "calloc je_calloc mi_calloc tc_calloc"),
    (
        &[
            Act::New(&[]),
            Act::Copy {
                to: usize::MAX,
                from: 0,
                length: None,
            },
        ],
        "realloc reallocarray je_realloc",
    ),
    (
        &[Act::StoreNew { at: 0 }],
        "posix_memalign asprintf vasprintf getline getdelim scandir getaddrinfo pmem2_map_new \
        pmem2_config_new pmem2_source_from_fd open_memstream",
    ),
    (
        &[Act::New(&[])],
        "strdup strndup fopen fdopen freopen tmpfile popen fopen64 opendir fdopendir getcwd realpath \
        get_current_dir_name pmemblk_create pmemlog_create setmntent dlopen newlocale duplocale \
        tempnam canonicalize_file_name backtrace_symbols tmpfile64",
    ),
    (
        &[Act::Map],
        "mmap mmap64 mremap shmat pmem_map_file pmem2_map_get_address",
    ),
    (
        &[Act::Argument(0)],
        "memset wmemset strcpy strncpy strcat strncat fgets gets inet_ntop \
        fgets_unlocked strerror_r pmem_memset pmem_memset_persist pmem_memset_nodrain __cxa_get_exception_ptr \
        pmemobj_memset pmemobj_memset_persist",
    ),
    (
        &[
            Act::Copy {
                to: 0,
                from: 1,
                length: Some(2),
            },
            Act::Argument(0),
        ],
        "memcpy memmove __memcpy_inline \
        pmem_memcpy pmem_memmove pmem_memcpy_persist pmem_memmove_persist pmem_memcpy_nodrain pmem_memmove_nodrain",
    ),
    (
        &[Act::Copy {
            to: 1,
            from: 0,
            length: Some(2),
        }],
        "bcopy",
    ),
    (
        &[
            Act::Copy {
                to: 1,
                from: 2,
                length: Some(3),
            },
            Act::Argument(1),
        ],
        "pmemobj_memcpy pmemobj_memmove \
        pmemobj_memcpy_persist",
    ),
    (
        &[
            Act::Copy {
                to: 0,
                from: 1,
                length: Some(2),
            },
            Act::Inside(0),
        ],
        "mempcpy memccpy",
    ),
    (
        &[Act::Inside(0)],
        "strchr strrchr strchrnul strstr strcasestr strpbrk memchr rawmemchr memrchr memmem index rindex \
        stpcpy stpncpy basename dirname __xpg_basename wcschr wcsrchr __dynamic_cast fgetws",
    ),
    (
        &[Act::StoreInside { at: 1, from: 0 }],
        "strtol strtoul strtoll strtoull strtod strtof strtold strtoimax strtoumax strtoq \
        strtouq",
    ),
    (
        &[
            Act::StoreInside { at: 2, from: 0 },
            Act::Inside(0),
            Act::Shared("strtok"),
        ],
        "strtok_r __strtok_r",
    ),
    (&[Act::Inside(0), Act::Shared("strtok")], "strtok"),
    (&[Act::StoreInside { at: 0, from: 0 }, Act::Inside(0)], "strsep"),
    (
        &[Act::Own],
        "__errno_location __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc getenv secure_getenv strerror \
        strsignal localtime gmtime ctime asctime setlocale nl_langinfo localeconv getpwnam getpwuid getgrnam getgrgid ttyname getlogin \
        inet_ntoa gai_strerror readdir readdir64 gethostbyname getservbyname getprotobyname dlerror __h_errno_location \
        pmem_errormsg pmemobj_errormsg pmem_check_version pmemobj_check_version gnu_get_libc_version \
        __cxa_get_globals bindtextdomain textdomain hstrerror crypt zError zlibVersion pmem2_errormsg",
    ),
    (&[Act::Argument(1)], "localtime_r gmtime_r ctime_r"),
    (&[Act::Inside(0)], "strptime"),
    (&[Act::Argument(0)], "dcgettext gettext ngettext"),
    (
        &[Act::Call {
            function: 3,
            arguments: &[Given::Inside(0), Given::Inside(0)],
            result: None,
        }],
        "qsort heapsort",
    ),
    (
        &[Act::Call {
            function: 3,
            arguments: &[Given::Inside(0), Given::Inside(0), Given::Argument(4)],
            result: None,
        }],
        "qsort_r",
    ),
    (
        &[
            Act::Call {
                function: 4,
                arguments: &[Given::Argument(0), Given::Inside(1)],
                result: None,
            },
            Act::Inside(1),
        ],
        "bsearch lfind",
    ),
    (
        &[Act::Call {
            function: 2,
            arguments: &[Given::Argument(3)],
            result: Some(THREADS),
        }],
        "pthread_create",
    ),
    (
        &[Act::Call {
            function: 0,
            arguments: &[],
            result: None,
        }],
        "atexit at_quick_exit",
    ),
    (
        &[Act::Call {
            function: 1,
            arguments: &[],
            result: None,
        }],
        "pthread_once",
    ),
    (
        &[Act::Call {
            function: 0,
            arguments: &[Given::Argument(1)],
            result: None,
        }],
        "__cxa_atexit __cxa_thread_atexit",
    ),
    // A pointer that was thrown is given back itself.
    (&[Act::Inside(0), Act::Held(0)], "__cxa_begin_catch"),
    (&[Act::Keep(0, THROWN)], "__cxa_throw"),
    (&[Act::Kept(THROWN)], "__cxa_current_primary_exception"),
    (&[Act::Keep(0, THREADS)], "pthread_exit"),
    (
        &[Act::StoreKept { at: 1, name: THREADS }],
        "pthread_join pthread_tryjoin_np pthread_timedjoin_np",
    ),
    (&[Act::Keep(1, SPECIFIC)], "pthread_setspecific tss_set"),
    (&[Act::Kept(SPECIFIC)], "pthread_getspecific tss_get"),
    (
        &[Act::Call {
            function: 1,
            arguments: &[Given::Kept(SPECIFIC)],
            result: None,
        }],
        "pthread_key_create tss_create",
    ),
    // PMDK's pools hold offsets, which libpmemobj makes pointers; all of them into one object here.
    (
        &[Act::Shared(POOL)],
        "pmemobj_create pmemobj_open pmemobj_direct pmemobj_pool_by_ptr pmemobj_pool_by_oid \
        pmemobj_volatile pmemblk_open pmemlog_open",
    ),
    (
        &[Act::Call {
            function: 4,
            arguments: &[Given::Argument(0), Given::Shared(POOL), Given::Argument(5)],
            result: None,
        }],
        "pmemobj_alloc pmemobj_xalloc",
    ),
    (
        &[Act::Call {
            function: 2,
            arguments: &[Given::Argument(0), Given::Shared(POOL), Given::Argument(3)],
            result: None,
        }],
        "pmemobj_root_construct",
    ),
];

/// Neither keep a pointer nor give one.
const HARMLESS: &str = "free cfree free_sized je_free mi_free tc_free _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvSt11align_val_t _ZdlPvmSt11align_val_t \
    strlen strnlen strcmp strncmp strcasecmp strncasecmp strcoll strspn strcspn memcmp bcmp strxfrm wcslen wcscmp strverscmp \
    printf fprintf dprintf sprintf snprintf vprintf vfprintf vdprintf vsprintf vsnprintf puts putchar fputs fputc putc perror psignal \
    scanf fscanf sscanf fread fwrite fflush fclose pclose fseek ftell fseeko ftello rewind feof ferror clearerr fileno getc fgetc getchar ungetc \
    setbuf fgetpos fsetpos remove rename unlink rmdir mkdir link symlink readlink chdir chmod chown access stat fstat lstat fstatat statfs \
    __xstat __fxstat __lxstat fputs_unlocked fwrite_unlocked putchar_unlocked fputc_unlocked \
    open openat creat close read write pread pwrite writev lseek fsync fdatasync ftruncate truncate fallocate posix_fallocate posix_fadvise \
    sync_file_range dup dup2 dup3 pipe pipe2 flock msync munmap mprotect madvise mlock munlock mincore sync syncfs sendfile splice \
    socket bind listen accept accept4 connect send recv sendto recvfrom shutdown getsockopt setsockopt getsockname getpeername socketpair \
    poll ppoll select pselect epoll_create epoll_create1 eventfd inotify_init kill raise getpid getppid gettid getuid geteuid getgid getegid setsid setuid \
    setgid umask fork vfork wait waitpid _exit exit abort sleep usleep nanosleep clock_nanosleep sched_yield time gettimeofday clock_gettime clock \
    clock_getres times mktime timegm difftime strftime tzset getrusage getrlimit setrlimit sysconf pathconf getpagesize uname gethostname \
    atoi atol atoll atof abs labs rand srand random srandom rand_r drand48 lrand48 getrandom getentropy isalpha isdigit isalnum isspace isupper islower \
    isxdigit isprint ispunct iscntrl isgraph toupper tolower htons ntohs htonl ntohl inet_addr inet_pton inet_aton closedir rewinddir \
    pthread_mutex_init pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock pthread_mutex_destroy pthread_mutexattr_init \
    pthread_mutexattr_settype pthread_mutexattr_destroy pthread_cond_init pthread_cond_wait pthread_cond_timedwait pthread_cond_signal \
    pthread_cond_broadcast pthread_cond_destroy pthread_rwlock_init pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_tryrdlock \
    pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_rwlock_destroy pthread_spin_init pthread_spin_lock pthread_spin_trylock pthread_spin_unlock \
    pthread_spin_destroy pthread_attr_init pthread_attr_setstacksize pthread_attr_getstacksize pthread_attr_setdetachstate pthread_attr_destroy \
    pthread_self pthread_equal pthread_detach pthread_cancel pthread_kill pthread_sigmask pthread_setname_np pthread_getname_np pthread_yield \
    pthread_setaffinity_np pthread_getaffinity_np pthread_setcancelstate pthread_setcanceltype pthread_testcancel \
    pthread_barrier_init pthread_barrier_wait pthread_barrier_destroy pthread_condattr_init pthread_condattr_setclock pthread_condattr_destroy \
    sem_init sem_wait sem_trywait sem_timedwait sem_post sem_destroy sem_getvalue sigemptyset sigfillset sigaddset sigdelset sigismember sigprocmask \
    sigsuspend alarm pause setpriority getpriority prctl sched_setaffinity sched_getaffinity sched_getcpu syslog openlog closelog isatty \
    tcgetattr tcsetattr system chroot utime utimes futimens getloadavg sysinfo \
    sin cos tan asin acos atan atan2 sinh cosh tanh exp exp2 expm1 log log2 log10 log1p pow sqrt cbrt floor ceil round lround llround rint lrint trunc fmod \
    fabs fmin fmax ldexp frexp modf hypot floorf ceilf sqrtf powf logf expf fabsf roundf fmodf floorl ceill fabsl powl isnan isinf finite __isnan __isinf \
    __assert_fail __stack_chk_fail __cxa_end_catch __cxa_rethrow __cxa_free_exception __cxa_guard_acquire __cxa_guard_release \
    __cxa_guard_abort __cxa_pure_virtual __cxa_bad_cast __clang_call_terminate _ZSt9terminatev _setjmp setjmp sigsetjmp __sigsetjmp longjmp siglongjmp \
    regexec regfree freeaddrinfo getnameinfo backtrace_symbols_fd malloc_usable_size malloc_trim mallopt dlclose gcvt \
    crc32 adler32 fegetround fesetround __fpclassify __signbit __finite bzero explicit_bzero swab ffs ffsl ffsll memfrob \
    pmem_persist pmem_msync pmem_flush pmem_drain pmem_deep_persist pmem_deep_flush pmem_deep_drain pmem_has_hw_drain pmem_has_auto_flush pmem_is_pmem \
    pmem_unmap pmem2_map_delete pmem2_config_delete pmem2_source_delete pmem2_config_set_required_store_granularity \
    pmemobj_close pmemobj_check pmemobj_free pmemobj_zalloc pmemobj_realloc pmemobj_zrealloc pmemobj_root pmemobj_root_size pmemobj_oid pmemobj_persist \
    pmemobj_flush pmemobj_drain pmemobj_xpersist pmemobj_xflush pmemobj_tx_begin pmemobj_tx_commit pmemobj_tx_end pmemobj_tx_process pmemobj_tx_stage \
    pmemobj_tx_abort pmemobj_tx_errno pmemobj_tx_add_range pmemobj_tx_add_range_direct pmemobj_tx_xadd_range pmemobj_tx_xadd_range_direct \
    pmemobj_tx_alloc pmemobj_tx_xalloc pmemobj_tx_zalloc pmemobj_tx_realloc pmemobj_tx_zrealloc pmemobj_tx_free pmemobj_tx_xfree pmemobj_tx_lock \
    pmemobj_alloc_usable_size pmemobj_type_num pmemobj_first pmemobj_next pmemobj_reserve pmemobj_publish pmemobj_cancel pmemobj_tx_publish \
    pmemobj_mutex_lock pmemobj_mutex_unlock pmemobj_mutex_trylock pmemobj_mutex_zero pmemobj_rwlock_rdlock pmemobj_rwlock_wrlock pmemobj_rwlock_unlock \
    pmemobj_rwlock_zero pmemobj_cond_wait pmemobj_cond_signal pmemobj_cond_broadcast pmemobj_ctl_get pmemobj_ctl_exec pmemobj_list_insert \
    pmemobj_list_remove pmemobj_list_move __sched_cpucount __cpu_indicator_init __popcountdi2 memfd_create shm_open shm_unlink ftok semget semop semctl \
    shmget shmctl shmdt getauxval __getauxval posix_madvise sched_setscheduler readv preadv pwritev fcntl ioctl";

/// Variants of a function (checked, of another standard, for large files) that do the same to pointers.
fn plain(name: &str) -> Cow<'_, str> {
    let name = name.strip_prefix("\u{1}").unwrap_or(name);
    let name = name
        .strip_prefix("__isoc99_")
        .or(name.strip_prefix("__isoc23_"))
        .unwrap_or(name);
    match name.strip_prefix("__").and_then(|name| name.strip_suffix("_chk")) {
        Some(name) => name.into(),
        None => name.into(),
    }
}

fn acts(name: &str) -> Option<&'static [Act]> {
    let name = plain(name);
    let is_among = |names: &str| names.split_ascii_whitespace().any(|other| other == name);
    let known = KNOWN.iter().find(|(_, names)| is_among(names));
    known.map(|(acts, _)| *acts).or_else(|| {
        let without_width = name
            .strip_suffix("64")
            .filter(|name| HARMLESS.split_ascii_whitespace().any(|other| other == *name));
        (is_among(HARMLESS) || without_width.is_some()).then_some(&[])
    })
}

/// Whether the function returns memory that is new.
pub(super) fn is_allocator(name: &str) -> bool {
    acts(name).is_some_and(|acts| acts.iter().any(|act| matches!(act, Act::New(_) | Act::Map)))
}

impl Generator {
    /// A call of a function without bitcode. `operands` are the values of the arguments, if they are known; `at` is the call, or the function.
    pub(super) unsafe fn external(
        &mut self,
        name: &str,
        arguments: &[Option<Variable>],
        operands: &[LLVMValueRef],
        result: Option<Variable>,
        at: LLVMValueRef,
    ) {
        let Some(acts) = acts(name) else {
            for argument in arguments.iter().flatten() {
                self.escape(*argument);
            }
            if let Some(result) = result {
                let unknown = self.unknown();
                self.constraints.copy(result, unknown);
            }
            return;
        };
        for act in acts {
            // SAFETY: the operands are live values.
            unsafe { self.act(*act, name, arguments, operands, result, at) };
        }
    }

    unsafe fn act(
        &mut self,
        act: Act,
        name: &str,
        arguments: &[Option<Variable>],
        operands: &[LLVMValueRef],
        result: Option<Variable>,
        at: LLVMValueRef,
    ) {
        let argument = |index: usize| arguments.get(index).copied().flatten();
        match act {
            Act::New(sizes) => {
                // SAFETY: the operands are live values.
                let mut size = sizes
                    .iter()
                    .map(|index| unsafe { self.number(*operands.get(*index)?, 0) });
                let size = size.try_fold(1u32, |product, size| product.checked_mul(u32::try_from(size?).ok()?));
                let end = size.filter(|_| !sizes.is_empty()).unwrap_or(UNKNOWN_SIZE);
                if let Some(result) = result {
                    let object = self.object(ObjectKind::Heap(at), end);
                    self.constraints.address(result, object);
                }
            }
            Act::Map => {
                if let Some(result) = result {
                    let object = self.object(ObjectKind::Mapping(at), UNKNOWN_SIZE);
                    self.constraints.address(result, object);
                    self.holds_itself(result);
                }
            }
            Act::Argument(index) => {
                if let (Some(to), Some(from)) = (result, argument(index)) {
                    self.constraints.copy(to, from);
                }
            }
            Act::Inside(index) => {
                if let (Some(to), Some(from)) = (result, argument(index)) {
                    let shift = Shift::Steps(1);
                    self.constraints.push(Constraint::Shift { to, from, shift });
                }
            }
            Act::Held(index) => {
                if let (Some(to), Some(from)) = (result, argument(index)) {
                    self.constraints.load(to, from);
                }
            }
            Act::Own => {
                if let Some(result) = result {
                    let own = self.shared(name);
                    self.constraints.copy(result, own);
                }
            }
            Act::Shared(name) => {
                if let Some(result) = result {
                    let shared = self.shared(name);
                    self.constraints.copy(result, shared);
                }
            }
            Act::Copy { to, from, length } => {
                let to = if to == usize::MAX { result } else { argument(to) };
                if let (Some(to), Some(from)) = (to, argument(from)) {
                    // SAFETY: the operands are live values.
                    let length = length.and_then(|index| unsafe { constant_number(*operands.get(index)?) });
                    let length = length.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
                    self.constraints.push(Constraint::CopyMemory { to, from, length });
                }
            }
            Act::StoreInside { at, from } => {
                if let (Some(at), Some(from)) = (argument(at), argument(from)) {
                    let inside = self.constraints.shifted(from, Shift::Steps(1));
                    self.constraints.store(at, inside);
                }
            }
            Act::StoreNew { at: index } => {
                if let Some(pointer) = argument(index) {
                    let new = self.pointer_to(ObjectKind::Heap(at), UNKNOWN_SIZE);
                    self.holds_itself(new);
                    self.constraints.store(pointer, new);
                }
            }
            Act::Call {
                function,
                arguments: given,
                result,
            } => {
                let Some(callee) = argument(function) else { return };
                let given = given.iter().map(|given| match given {
                    Given::Argument(index) => argument(*index),
                    Given::Inside(index) => Some(self.constraints.shifted(argument(*index)?, Shift::Steps(1))),
                    Given::Shared(name) => Some(self.shared(name)),
                    Given::Kept(name) => Some(self.named(name)),
                });
                let arguments = given.collect();
                let call = Call {
                    callee,
                    arguments,
                    result: result.map(|name| self.named(name)),
                };
                self.calls.push(at);
                self.constraints.push(Constraint::Call(call));
            }
            Act::Keep(index, name) => {
                if let Some(from) = argument(index) {
                    let kept = self.named(name);
                    self.constraints.copy(kept, from);
                }
            }
            Act::Kept(name) => {
                if let Some(to) = result {
                    let kept = self.named(name);
                    self.constraints.copy(to, kept);
                }
            }
            Act::StoreKept { at, name } => {
                if let Some(at) = argument(at) {
                    let kept = self.named(name);
                    self.constraints.store(at, kept);
                }
            }
        }
    }

    /// Memory of a library, made once for its name.
    fn shared(&mut self, name: &str) -> Variable {
        if let Some(known) = self.named.get(name) {
            return *known;
        }
        let variable = self.pointer_to(ObjectKind::Library(name.to_owned()), UNKNOWN_SIZE);
        self.named.insert(name.to_owned(), variable);
        self.holds_itself(variable);
        variable
    }

    /// What an object holds may point anywhere into it.
    fn holds_itself(&mut self, pointer: Variable) {
        let inside = self.constraints.shifted(pointer, Shift::Steps(1));
        self.constraints.store(inside, inside);
    }
}
