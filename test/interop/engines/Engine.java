import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetWriter;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.parquet.Parquet;

/**
 * Commits to a table as another engine does: DIR NAMESPACE TABLE and what to do. "maintain" tags the current snapshot, expires the oldest one and sets a
 * property; "refs" prints what came of it; "rewrite" moves all live rows to one new file, in random order, and prints that; "append" adds a row again.
 */
public final class Engine {
  public static void main(String[] args) throws Exception {
    Path dir = Path.of(args[0]);
    JdbcCatalog catalog = new JdbcCatalog(properties -> new LocatedFileIO(), null, false);
    catalog.initialize("pgmirror", Map.of(
        "uri", "jdbc:sqlite:" + dir.resolve("catalog.db"),
        "warehouse", dir.resolve("warehouse").toString()));
    Table table = catalog.loadTable(TableIdentifier.of(args[1], args[2]));
    switch (args[3]) {
      case "maintain" -> {
        table.updateProperties().set("gc.enabled", "true").set("owner", "somebody").commit();
        table.manageSnapshots().createTag("audit", table.currentSnapshot().snapshotId()).commit();
        table.expireSnapshots().expireSnapshotId(table.snapshots().iterator().next().snapshotId()).cleanExpiredFiles(false).commit();
      }
      case "refs" -> System.out.println(new TreeSet<>(table.refs().keySet()) + " " + table.properties().get("owner"));
      case "rewrite" -> rewrite(table);
      case "append" -> {
        DataFile file = write(table, rows(table).subList(0, 1));
        table.newAppend().appendFile(file).commit();
      }
      default -> throw new IllegalArgumentException(args[3]);
    }
  }

  /** Local files whose locations are those that they were asked for by: a commit compares them with what the catalog says. */
  public static final class LocatedFileIO implements FileIO {
    private final LocalFileIO files = new LocalFileIO();

    @Override
    public InputFile newInputFile(String path) {
      InputFile file = files.newInputFile(path);
      return new InputFile() {
        @Override
        public long getLength() {
          return file.getLength();
        }

        @Override
        public SeekableInputStream newStream() {
          return file.newStream();
        }

        @Override
        public String location() {
          return path;
        }

        @Override
        public boolean exists() {
          return file.exists();
        }
      };
    }

    @Override
    public OutputFile newOutputFile(String path) {
      OutputFile file = files.newOutputFile(path);
      return new OutputFile() {
        @Override
        public PositionOutputStream create() {
          return file.create();
        }

        @Override
        public PositionOutputStream createOrOverwrite() {
          return file.createOrOverwrite();
        }

        @Override
        public String location() {
          return path;
        }

        @Override
        public InputFile toInputFile() {
          return newInputFile(path);
        }
      };
    }

    @Override
    public void deleteFile(String path) {
      files.deleteFile(path);
    }
  }

  private static List<Record> rows(Table table) throws Exception {
    List<Record> rows = new ArrayList<>();
    try (CloseableIterable<Record> records = IcebergGenerics.read(table).build()) {
      records.forEach(r -> rows.add(r.copy()));
    }
    return rows;
  }

  private static DataFile write(Table table, List<Record> rows) throws Exception {
    String path = table.locationProvider().newDataLocation("00000-0-" + UUID.randomUUID() + "-00001.parquet");
    DataWriter<Record> writer = Parquet.writeData(table.io().newOutputFile(path))
        .forTable(table)
        .createWriterFunc(GenericParquetWriter::create)
        .build();
    try (writer) {
      writer.write(rows);
    }
    return writer.toDataFile();
  }

  private static void rewrite(Table table) throws Exception {
    List<Record> rows = rows(table);
    Collections.shuffle(rows, new Random(1));
    RewriteFiles rewrite = table.newRewrite().validateFromSnapshot(table.currentSnapshot().snapshotId());
    try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
      for (FileScanTask task : tasks) {
        rewrite.deleteFile(task.file());
        for (DeleteFile vector : task.deletes()) {
          rewrite.deleteFile(vector);
        }
      }
    }
    DataFile file = write(table, rows);
    rewrite.addFile(file);
    rewrite.commit();
    System.out.println(file.location());
  }
}
