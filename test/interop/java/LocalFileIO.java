import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;

/** Local files without Hadoop, named by bare absolute paths or file: URIs. */
public final class LocalFileIO implements FileIO {
  private static final long serialVersionUID = 1;

  private static String local(String location) {
    return location.startsWith("file:") ? location.replaceFirst("^file:(//[^/]*)?", "") : location;
  }

  @Override
  public InputFile newInputFile(String path) {
    return org.apache.iceberg.Files.localInput(local(path));
  }

  @Override
  public OutputFile newOutputFile(String path) {
    return org.apache.iceberg.Files.localOutput(local(path));
  }

  @Override
  public void deleteFile(String path) {
    try {
      Files.deleteIfExists(Path.of(local(path)));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
