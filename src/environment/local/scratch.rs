//! The end of a directory that programs worked in.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

/// For programs that are about to end to write their last.
const STILL_WRITTEN: Duration = Duration::from_secs(2);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(50);

/// Removes a directory into which somebody may still write: a shell that is just ending leaves its history.
/// Fine when it is not there.
///
/// # Errors
/// As `rmdir(2)` and `unlink(2)`; `DirectoryNotEmpty` when the writing does not end.
pub fn remove_tree(dir: &Path) -> io::Result<()> {
    let until = Instant::now() + STILL_WRITTEN;
    loop {
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty && Instant::now() < until => {
                std::thread::sleep(AGAIN);
            }
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Removed again and again beside somebody who writes: one removal in a few finds a new file in the
    /// directory that it has just emptied.
    #[test]
    fn a_directory_goes_though_somebody_still_writes_into_it() {
        let temp = std::env::temp_dir().join(format!("pilothouse-still-written-{}", std::process::id()));
        let end = Instant::now() + Duration::from_millis(400);
        let written = temp.clone();
        let writer = std::thread::spawn(move || {
            while Instant::now() < end {
                let _ = fs::create_dir_all(&written);
                for n in 0..50 {
                    // The directory may be gone by now.
                    let _ = fs::write(written.join(n.to_string()), "x");
                }
            }
        });
        while Instant::now() < end {
            let removed = remove_tree(&temp);
            assert!(removed.is_ok(), "{removed:?}");
        }
        assert!(writer.join().is_ok());
        let _ = fs::remove_dir_all(&temp);
    }
}
