//! Files into and out of containers by the engine's archive interface.

use std::io;
use std::path::{Path, PathBuf};

use bollard::query_parameters::{
    ContainerArchiveInfoOptions, DownloadFromContainerOptions, UploadToContainerOptionsBuilder,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::mpsc;

use super::super::pack::{self, Packed};
use super::super::pipe::{PipeReader, PipeWriter, feed, pipe};
use super::super::unpack::{Manner, only_file, unpack_part};
use super::super::{Caps, EnvError, Exclude, Fetched, FileBytes, Trouble, Upload, plain_path};
use super::container::DockerEnvironment;
use super::{DockerEngine, calls};
use crate::harbor::Dir;

/// Go's bit for a directory in the mode that the engine reports.
const GO_DIR: u32 = 1 << 31;
/// Go's bit for a symbolic link.
const GO_SYMLINK: u32 = 1 << 27;
/// Go's bits for anything that is no regular file.
const GO_TYPE: u32 = GO_DIR | GO_SYMLINK | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19;

/// What a path inside is; a link at its end is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    Missing,
    Dir,
    File(u64),
    /// A link; whether it leads to a directory is for the engine to say.
    Link,
    Other,
}

/// An archive to be sent.
enum Archive {
    Whole(Bytes),
    /// The first piece, and where the others come from.
    Pieces(io::Result<Bytes>, mpsc::Receiver<io::Result<Bytes>>),
}

/// What a pipe carries, for the body of a request.
pub(super) fn pieces(mut rx: mpsc::Receiver<io::Result<Bytes>>) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::poll_fn(move |context| rx.poll_recv(context))
}

impl DockerEngine {
    /// Looks at a path inside.
    pub(super) async fn look(&self, id: &str, path: &str) -> Result<Inside, EnvError> {
        let options = ContainerArchiveInfoOptions { path: path.to_string() };
        let asked = self.docker().get_container_archive_info(id, Some(options));
        match self.call(&calls::STAT, &format!("{id} {path}"), asked).await {
            Ok(stat) if stat.file_mode & GO_DIR != 0 => Ok(Inside::Dir),
            Ok(stat) if stat.file_mode & GO_SYMLINK != 0 => Ok(Inside::Link),
            Ok(stat) if stat.file_mode & GO_TYPE != 0 => Ok(Inside::Other),
            Ok(stat) => Ok(Inside::File(u64::try_from(stat.size).unwrap_or(0))),
            Err(e) if e.trouble == Trouble::NotFound => Ok(Inside::Missing),
            Err(e) => Err(e),
        }
    }
}

impl DockerEnvironment {
    /// Uploads as one archive, unpacked at the root: the engine refuses links that lead out of the
    /// directory where it unpacks, and a task may have `../`. A destination that exists keeps its mode
    /// (a link of the image on the way is followed, inside); the engine makes a missing one (mode 755) for
    /// what lies in it. That it is a directory is looked at only when that fails: a look costs as much as
    /// the upload.
    pub(super) async fn put(&self, from: Upload, to: &str) -> Result<Packed, EnvError> {
        let call = format!("upload to {to}");
        let to = plain_path(&call, to)?;
        let id = self.ready(&call).await?;
        let tree = !matches!(from, Upload::Bytes(..));
        let (writer, mut rx) = pipe();
        let prefix = relative(&to);
        let mut packing = tokio::task::spawn_blocking(move || packed(from, &prefix, writer));
        let broken = |e: tokio::task::JoinError| EnvError::new(Trouble::Io, &call, &e.to_string(), "");
        // Most of what is uploaded fits in one piece, which comes with the end of the packing.
        let (body, whole) = match rx.recv().await {
            None => {
                let (packed, whole) = (&mut packing).await.map_err(broken)?.map_err(|e| EnvError::io(&call, &e))?;
                let whole = whole.unwrap_or_default();
                if whole.is_empty() {
                    return self.put_nothing(&id, &to, &call).await.map(|()| packed);
                }
                (Archive::Whole(whole), Some(packed))
            }
            Some(first) => (Archive::Pieces(first, rx), None),
        };
        let sent = match self.send(&id, &to, body).await {
            Err(e) if tree && !matches!(e.trouble, Trouble::TimedOut | Trouble::Unreachable) => {
                Err(self.in_the_way(&id, &to, &call).await.unwrap_or(e))
            }
            sent => sent,
        };
        if let Some(packed) = whole {
            return sent.map(|()| packed);
        }
        match packing.await {
            Ok(Ok((packed, _))) => sent.map(|()| packed),
            // Our own side failed: that is the reason, whatever the engine says about half an archive.
            Ok(Err(e)) if e.kind() != io::ErrorKind::BrokenPipe => Err(EnvError::io(&call, &e)),
            Ok(Err(e)) => Err(sent.err().unwrap_or_else(|| EnvError::io(&call, &e))),
            Err(e) => Err(broken(e)),
        }
    }

    async fn send(&self, id: &str, to: &str, archive: Archive) -> Result<(), EnvError> {
        let body = match archive {
            Archive::Whole(bytes) => bollard::body_full(bytes),
            Archive::Pieces(first, rest) => {
                bollard::body_try_stream(stream::once(std::future::ready(first)).chain(pieces(rest)))
            }
        };
        let options = UploadToContainerOptionsBuilder::default().path("/").build();
        let sent = self.engine().docker().upload_to_container(id, Some(options), body);
        self.engine().call(&calls::UPLOAD, &format!("{id} {to}"), sent).await
    }

    /// An empty directory. Its entry would change the mode of one that is there; without one in the
    /// archive it would not be made.
    async fn put_nothing(&self, id: &str, to: &str, call: &str) -> Result<(), EnvError> {
        if self.engine().look(id, to).await? != Inside::Missing {
            return self.in_the_way(id, to, call).await.map_or(Ok(()), Err);
        }
        let mut builder = tar::Builder::new(Vec::new());
        let made = pack::pack_dir(&relative(to), &mut builder).and_then(|()| builder.into_inner());
        let made = made.map_err(|e| EnvError::io(call, &e))?;
        self.send(id, to, Archive::Whole(made.into())).await
    }

    /// Why no directory can be put there: something else has the name.
    async fn in_the_way(&self, id: &str, to: &str, call: &str) -> Option<EnvError> {
        let inside = self.engine().look(id, to).await.ok()?;
        let detail = format!("{to} inside is no directory");
        let wrong = || EnvError::new(Trouble::Path, call, &detail, "upload to another path");
        matches!(inside, Inside::File(_) | Inside::Other).then(wrong)
    }

    pub(super) async fn take_file(&self, from: &str, cap: u64) -> Result<FileBytes, EnvError> {
        let call = format!("download {from}");
        let from = plain_path(&call, from)?;
        match self.engine().look(&self.id(&call)?, &from).await? {
            Inside::File(_) => {}
            Inside::Missing => {
                return Err(EnvError::new(Trouble::NotFound, &call, "there is no such file inside", ""));
            }
            other => return Err(not_a_file(&call, words(other))),
        }
        let taken = self.take(&call, &from, move |reader| Ok(only_file(reader, cap))).await?;
        taken.map_err(|wrong| match wrong {
            Ok(what) => not_a_file(&call, what),
            Err(e) => EnvError::io(&call, &e),
        })
    }

    pub(super) async fn take_tree(
        &self,
        from: &str,
        into: &Path,
        caps: Caps,
        without: Exclude,
    ) -> Result<Fetched, EnvError> {
        let call = format!("download {from}");
        let from = plain_path(&call, from)?;
        if from == "/" {
            return Err(EnvError::new(Trouble::Path, &call, "the whole file system is not taken", "name a directory"));
        }
        match self.engine().look(&self.id(&call)?, &from).await? {
            Inside::File(_) | Inside::Dir => {}
            Inside::Missing => {
                return Err(EnvError::new(Trouble::NotFound, &call, "there is no such path inside", ""));
            }
            other => return Err(not_a_file(&call, words(other))),
        }
        let into = Dir::open(into).map_err(|e| EnvError::io(&call, &e))?;
        // The engine puts the last part of the path before every name.
        self.take(&call, &from, move |reader| unpack_part(reader, &into, caps, Manner::Careful, 1, &without)).await
    }

    /// Streams an archive out to a thread. The reader may stop early; then the transfer is dropped.
    async fn take<T: Send + 'static>(
        &self,
        call: &str,
        from: &str,
        read: impl FnOnce(PipeReader) -> io::Result<T> + Send + 'static,
    ) -> Result<T, EnvError> {
        let id = self.id(call)?;
        let subject = format!("{id} {from}");
        let (tx, reader) = feed();
        let reading = tokio::task::spawn_blocking(move || read(reader));
        let options = DownloadFromContainerOptions { path: from.to_string() };
        let mut stream = std::pin::pin!(self.engine().docker().download_from_container(&id, Some(options)));
        let mut failed = None;
        loop {
            match tokio::time::timeout(calls::DOWNLOAD.limit, stream.next()).await {
                Ok(Some(Ok(piece))) => {
                    if tx.send(Ok(piece)).await.is_err() {
                        break;
                    }
                }
                Ok(None) => break,
                Ok(Some(Err(e))) => {
                    failed = Some(calls::explain(&calls::DOWNLOAD, &subject, &e));
                    break;
                }
                Err(_) => {
                    failed = Some(calls::late(&calls::DOWNLOAD, &subject, calls::DOWNLOAD.limit));
                    break;
                }
            }
        }
        if failed.is_some() {
            let _ = tx.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
        }
        drop(tx);
        let result = reading.await.map_err(|e| EnvError::new(Trouble::Io, call, &e.to_string(), ""))?;
        match (failed, result) {
            (Some(e), _) => Err(e),
            (None, result) => result.map_err(|e| EnvError::io(call, &e)),
        }
    }
}

/// Packs what is uploaded; given back whole where it fits in one piece, and empty where there is nothing.
fn packed(from: Upload, prefix: &Path, writer: PipeWriter) -> io::Result<(Packed, Option<Bytes>)> {
    let mut builder = tar::Builder::new(writer);
    let (from, program) = match from {
        Upload::Scripts(dir, program) => (Upload::Dir(dir), Some(program)),
        other => (other, None),
    };
    let rules = pack::Rules { program: program.as_deref(), ..pack::Rules::all() };
    let packed = match from {
        Upload::Bytes(data, mode) => pack::pack_bytes(prefix, &data, mode, &mut builder).map(|()| Packed {
            files: 1,
            bytes: data.len() as u64,
            ..Packed::default()
        }),
        Upload::Dir(path) | Upload::Scripts(path, _) => {
            pack::open_source(&path).and_then(|dir| pack::pack(&dir, prefix, &mut builder, &rules))
        }
    };
    if builder.get_ref().is_empty() {
        return packed.map(|packed| (packed, None));
    }
    match (packed, builder.into_inner()) {
        (Ok(packed), Ok(writer)) => writer.finish().map(|whole| (packed, whole)),
        (Err(e), Ok(writer)) => {
            if writer.is_under_way() {
                writer.fail(io::Error::new(e.kind(), e.to_string()));
            }
            Err(e)
        }
        (_, Err(e)) => Err(e),
    }
}

fn relative(path: &str) -> PathBuf {
    PathBuf::from(path.trim_start_matches('/'))
}

fn words(inside: Inside) -> &'static str {
    match inside {
        Inside::Missing => "missing",
        Inside::Dir => "a directory",
        Inside::File(_) => "a file",
        Inside::Link => "a symbolic link",
        Inside::Other => "a FIFO, socket or device",
    }
}

fn not_a_file(call: &str, what: &str) -> EnvError {
    EnvError::new(Trouble::Path, call, &format!("it is {what} inside: not taken"), "")
}
