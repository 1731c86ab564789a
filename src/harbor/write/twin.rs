//! A file that grows at its end and is seen whole or not at all, without being written anew for it.
//!
//! Two files take turns. One has the name; the other, under a temporary name, lacks what came since it
//! had it: that is appended, it is synced, and the two exchange their names in one step. So a file of
//! 200 MB costs what is new of it, and a reader that has it open keeps one that does not change before
//! the next but one writing (and then only behind what it has in common with the newer ones).
//!
//! A container can write in their directory. What is true is kept in a third file that has no name and
//! can not be reached from there; a copy that was touched since it was written is made anew from it, as
//! it is where the file system can not exchange names.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::atomic::{Folder, WriteError, sync_all, temp_name};

/// Mode of such a file, before the umask.
const FILE_MODE: u32 = 0o644;
/// Bytes copied at a time.
const BLOCK: usize = 256 * 1024;

/// What tells whether somebody touched a file: the time of its last change can not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    inode: (u64, u64),
    links: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    fn of(stat: &rustix::fs::Stat) -> Mark {
        Mark {
            inode: (stat.st_dev as u64, stat.st_ino as u64),
            links: stat.st_nlink as u64,
            size: stat.st_size as i64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

/// One of the two.
#[derive(Debug)]
struct Copy {
    file: File,
    /// Its temporary name, while it has one.
    temp: String,
    /// Bytes at its beginning that are the true ones.
    stable: u64,
    /// As it was left.
    mark: Mark,
}

impl Copy {
    fn look(&self) -> Option<Mark> {
        rustix::fs::fstat(&self.file).ok().as_ref().map(Mark::of)
    }

    fn untouched(&self) -> bool {
        self.mark.links == 1 && self.look() == Some(self.mark)
    }
}

/// A file that grows: what is appended stays, what stands behind it is written anew each time.
#[derive(Debug)]
pub struct Twin {
    folder: Arc<Folder>,
    name: String,
    path: PathBuf,
    /// What stays, without a name.
    truth: File,
    stable: u64,
    /// The one that has the name.
    shown: Option<Copy>,
    /// The one that has it next.
    spare: Option<Copy>,
    /// Whether the file system can exchange names, as far as is known.
    exchanges: bool,
}

impl Twin {
    /// Begins a file that nobody sees yet.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn begin(folder: Arc<Folder>, name: &str) -> Result<Twin, WriteError> {
        let path = folder.named(name)?;
        let truth = nameless(&folder).map_err(|e| WriteError::of(&path, &e))?;
        let name = name.to_string();
        Ok(Twin { folder, name, path, truth, stable: 0, shown: None, spare: None, exchanges: true })
    }

    /// Bytes appended so far.
    pub fn len(&self) -> u64 {
        self.stable
    }

    /// Whether nothing is appended yet.
    pub fn is_empty(&self) -> bool {
        self.stable == 0
    }

    /// Where it is seen.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Appends; nobody sees it before the next [`Twin::show`].
    ///
    /// # Errors
    /// See [`WriteError`]; then nothing was appended.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.truth.write_all_at(bytes, self.stable).map_err(|e| WriteError::of(&self.path, &e))?;
        self.stable += bytes.len() as u64;
        Ok(())
    }

    /// Reads of what was appended.
    ///
    /// # Errors
    /// As `pread(2)`; asking beyond the end is an error.
    pub fn read(&self, from: u64, len: usize) -> Result<Vec<u8>, WriteError> {
        let mut out = vec![0; len];
        self.truth.read_exact_at(&mut out, from).map_err(|e| WriteError::of(&self.path, &e))?;
        Ok(out)
    }

    /// Shows everything that was appended, and `tail` behind it, in place of what was there. It is on the
    /// disk; that it has the name, after the next call at the latest.
    ///
    /// # Errors
    /// See [`WriteError`]; then what was there is there still, and the next call tries again.
    pub fn show(&mut self, tail: &[u8]) -> Result<(), WriteError> {
        // What takes the place of a file must not be changed before the exchange is on the disk.
        if self.spare.is_some() {
            self.folder.sync()?;
        }
        let next = self.next()?;
        let shown = self.fill(next, tail).and_then(|next| self.rename(next));
        shown.map_err(|e| WriteError::of(&self.path, &e))
    }

    /// Removes what is not needed when nothing more comes.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.give_up_spare();
        self.folder.sync()
    }

    fn give_up_spare(&mut self) {
        if let Some(spare) = self.spare.take() {
            self.discard(&spare);
        }
    }

    /// The one to be shown next, with what it had.
    fn next(&mut self) -> Result<Copy, WriteError> {
        if let Some(spare) = self.spare.take() {
            if spare.untouched() && self.names(&spare.temp, &spare) {
                return Ok(spare);
            }
            self.discard(&spare);
        }
        let temp = temp_name(&self.name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(self.folder.dir(), temp.as_str(), flags, Mode::from_raw_mode(FILE_MODE))
            .and_then(|fd| rustix::fs::fstat(&fd).map(|stat| (File::from(fd), Mark::of(&stat))));
        let (file, mark) = made.map_err(|e| WriteError::of(&self.path, &e.into()))?;
        Ok(Copy { file, temp, stable: 0, mark })
    }

    /// Appends what it lacks, and the tail. A failure removes it.
    fn fill(&self, mut copy: Copy, tail: &[u8]) -> io::Result<Copy> {
        let filled = || -> io::Result<()> {
            self.copy_to(&copy.file, copy.stable)?;
            copy.file.write_all_at(tail, self.stable)?;
            copy.file.set_len(self.stable + tail.len() as u64)?;
            sync_all(&copy.file)
        };
        match filled() {
            Ok(()) => {
                copy.stable = self.stable;
                Ok(copy)
            }
            Err(e) => {
                self.discard(&copy);
                Err(e)
            }
        }
    }

    fn copy_to(&self, to: &File, from: u64) -> io::Result<()> {
        let (mut source, mut target) = (&self.truth, to);
        source.seek(SeekFrom::Start(from))?;
        target.seek(SeekFrom::Start(from))?;
        let missing = self.stable - from;
        // Much of it is copied by the kernel, which may only have to note where it lies.
        let copied = if missing > BLOCK as u64 {
            io::copy(&mut source.take(missing), &mut target)?
        } else {
            let mut block = vec![0; usize::try_from(missing).unwrap_or(BLOCK)];
            source.read_exact(&mut block)?;
            io::Write::write_all(&mut target, &block)?;
            missing
        };
        if copied == missing { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn rename(&mut self, mut next: Copy) -> io::Result<()> {
        let before = next.look();
        let old = self.shown.take();
        let kept = old.as_ref().is_some_and(|old| self.exchanges && old.untouched() && self.names(&self.name, old));
        let exchanged = kept && self.exchange(&next.temp);
        if !exchanged
            && let Err(e) = rustix::fs::renameat(self.folder.dir(), &*next.temp, self.folder.dir(), &*self.name)
        {
            self.discard(&next);
            self.shown = old;
            return Err(e.into());
        }
        let temp = std::mem::take(&mut next.temp);
        if let Some(mut old) = old.filter(|_| exchanged) {
            // The exchange has changed its mark, and nothing else has.
            let same = |now: &Mark| {
                (now.inode, now.links, now.size, now.modified) == (old.mark.inode, 1, old.mark.size, old.mark.modified)
            };
            let now = old.look().filter(same);
            old.temp = temp;
            match now {
                Some(mark) => self.spare = Some(Copy { mark, ..old }),
                None => self.discard(&old),
            }
        }
        // One that was touched meanwhile is not taken again.
        let now = next.look();
        let same = before.zip(now).is_some_and(|(b, n)| (b.inode, b.size, b.modified) == (n.inode, n.size, n.modified));
        self.shown = now.filter(|_| same).map(|mark| Copy { mark, ..next });
        Ok(())
    }

    /// Exchanges the names; false where that can not be.
    fn exchange(&mut self, temp: &str) -> bool {
        #[cfg(any(target_os = "linux", target_vendor = "apple"))]
        {
            use rustix::fs::RenameFlags;
            let dir = self.folder.dir();
            match rustix::fs::renameat_with(dir, temp, dir, &*self.name, RenameFlags::EXCHANGE) {
                Ok(()) => return true,
                // Removed at this very moment.
                Err(Errno::NOENT) => return false,
                Err(_) => {}
            }
        }
        let _ = temp;
        self.exchanges = false;
        false
    }

    /// Whether a name is this file's.
    fn names(&self, name: &str, copy: &Copy) -> bool {
        rustix::fs::statat(self.folder.dir(), name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| Mark::of(&stat).inode == copy.mark.inode)
    }

    /// Removes one that has a temporary name. What somebody put in its place stays.
    fn discard(&self, copy: &Copy) {
        if !copy.temp.is_empty() && self.names(&copy.temp, copy) {
            let _ = rustix::fs::unlinkat(self.folder.dir(), copy.temp.as_str(), AtFlags::empty());
        }
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        self.give_up_spare();
    }
}

/// A file without a name, on the file system of a folder.
fn nameless(folder: &Folder) -> io::Result<File> {
    let mode = Mode::from_raw_mode(0o600);
    #[cfg(target_os = "linux")]
    {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        if let Ok(fd) = rustix::fs::openat(folder.dir(), ".", flags, mode) {
            return Ok(File::from(fd));
        }
    }
    let temp = temp_name("spool");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder.dir(), temp.as_str(), flags, mode)?;
    rustix::fs::unlinkat(folder.dir(), temp.as_str(), AtFlags::empty())?;
    Ok(File::from(fd))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    fn twin(dir: &std::path::Path) -> Twin {
        Twin::begin(Arc::new(Folder::open(dir).unwrap()), "t.json").unwrap()
    }

    fn names(dir: &std::path::Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    /// Appends and shows, and gives what is then seen.
    fn next(twin: &mut Twin, n: usize) -> (String, String) {
        let before = twin.read(0, usize::try_from(twin.len()).unwrap()).unwrap();
        let new = format!("step {n} {}\n", "x".repeat(n * 997 % 5000));
        twin.append(new.as_bytes()).unwrap();
        // The tail gets shorter, too.
        let tail = format!("end {}", "y".repeat(100 - n));
        twin.show(tail.as_bytes()).unwrap();
        let seen = fs::read_to_string(twin.path()).unwrap();
        (seen, format!("{}{new}{tail}", String::from_utf8(before).unwrap()))
    }

    #[test]
    fn two_files_take_turns() {
        let temp = tempfile::tempdir().unwrap();
        let mut file = twin(temp.path());
        assert_eq!(names(temp.path()), 0);
        let mut inodes = std::collections::BTreeSet::new();
        for n in 0..20 {
            let (seen, expected) = next(&mut file, n);
            assert_eq!(seen, expected);
            inodes.insert(fs::metadata(file.path()).unwrap().ino());
        }
        if file.exchanges {
            assert_eq!((inodes.len(), names(temp.path())), (2, 2));
        }
        file.finish().unwrap();
        assert_eq!(names(temp.path()), 1);
    }

    #[test]
    fn without_an_exchange_it_is_copied() {
        let temp = tempfile::tempdir().unwrap();
        let mut file = twin(temp.path());
        file.exchanges = false;
        for n in 0..5 {
            let (seen, expected) = next(&mut file, n);
            assert_eq!((seen == expected, names(temp.path())), (true, 1));
        }
        file.append(&vec![b'z'; 3 * BLOCK]).unwrap();
        file.show(b"!").unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().len(), file.len() + 1);
    }

    /// Whatever is done to either of the two, the next writing is whole and true.
    #[test]
    fn what_was_touched_is_made_anew() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("agent");
        fs::create_dir(&dir).unwrap();
        let victim = temp.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let mut file = twin(&dir);
        // What an earlier one left there is not ours.
        let spare = |dir: &std::path::Path| {
            let mut all = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
            let ours = |p: &PathBuf| fs::symlink_metadata(p).is_ok_and(|m| m.is_file() && m.nlink() == 1);
            all.find(|p| p.file_name().unwrap() != "t.json" && ours(p))
        };
        let mischief: [fn(&std::path::Path, &std::path::Path); 8] = [
            |path, _| fs::write(path, "{}").unwrap(),
            |path, _| fs::remove_file(path).unwrap(),
            |path, victim| {
                fs::remove_file(path).unwrap();
                symlink(victim, path).unwrap();
            },
            |path, victim| {
                fs::remove_file(path).unwrap();
                fs::hard_link(victim, path).unwrap();
            },
            |path, _| fs::File::options().write(true).open(path).unwrap().set_len(1).unwrap(),
            |path, _| {
                // Same length, and the old time set again.
                let times = fs::metadata(path).unwrap().modified().unwrap();
                let file = fs::File::options().write(true).open(path).unwrap();
                file.write_all_at(b"HA", 0).unwrap();
                file.set_modified(times).unwrap();
            },
            |path, victim| {
                let second = victim.with_file_name("second");
                let _ = fs::remove_file(&second);
                fs::hard_link(path, second).unwrap();
            },
            |path, victim| fs::rename(path, victim.with_file_name("away")).unwrap(),
        ];
        let mut n = 0;
        for act in mischief {
            for at_spare in [false, true] {
                for _ in 0..2 {
                    next(&mut file, n);
                    n += 1;
                }
                let path = if at_spare { spare(&dir) } else { Some(dir.join("t.json")) };
                if let Some(path) = path {
                    act(&path, &victim);
                }
                for _ in 0..3 {
                    let (seen, expected) = next(&mut file, n);
                    assert_eq!(seen, expected);
                    assert!(fs::symlink_metadata(file.path()).unwrap().is_file());
                    n += 1;
                }
            }
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
        // A directory in the way is named, and the next writing after it is gone is whole.
        fs::remove_file(dir.join("t.json")).unwrap();
        fs::create_dir(dir.join("t.json")).unwrap();
        file.append(b"more").unwrap();
        let error = file.show(b"").unwrap_err();
        assert!(matches!(error, WriteError::InTheWay { what: "a directory", .. }), "{error}");
        fs::remove_dir(dir.join("t.json")).unwrap();
        let (seen, expected) = next(&mut file, n);
        assert_eq!(seen, expected);
        // What somebody else put under a temporary name of ours stays; nothing of ours does.
        file.finish().unwrap();
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.iter().all(|p| p.ends_with("t.json") || fs::metadata(p).unwrap().len() == 4), "{left:?}");
    }

    #[test]
    fn readers_never_see_half_of_it() {
        let temp = tempfile::tempdir().unwrap();
        let mut file = twin(temp.path());
        file.append(b"begin\n").unwrap();
        file.show(b"end\n").unwrap();
        let path = file.path().to_path_buf();
        let (over, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
        let looks = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut looks = 0;
                while !over.load(Ordering::SeqCst) {
                    let before = begun.load(Ordering::SeqCst);
                    let text = fs::read_to_string(&path).unwrap();
                    // One that reads for longer than a writing takes may meet the next but one.
                    if begun.load(Ordering::SeqCst) == before {
                        assert!(text.starts_with("begin\n") && text.ends_with("end\n"), "{:?}", text.get(..40));
                        assert_eq!(text.matches("end\n").count(), 1);
                        looks += 1;
                    }
                }
                looks
            });
            for n in 0..200 {
                file.append(format!("{n:0100}\n").as_bytes()).unwrap();
                begun.fetch_add(1, Ordering::SeqCst);
                file.show(b"end\n").unwrap();
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
            over.store(true, Ordering::SeqCst);
            reader.join().unwrap()
        });
        assert!(looks > 20, "{looks}");
    }
}
