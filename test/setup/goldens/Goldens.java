import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.SortedSet;
import java.util.TreeSet;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.types.Types;

/**
 * Writes deletion vectors with Iceberg's own Java writer, as the expected bytes of our tests.
 *
 * <p>Each position set becomes deletion/testdata/NAME.puffin-blob, exactly the bytes of its deletion-vector-v1 blob, and
 * NAME.json beside it, which says what is in it. Two sets also become one whole Puffin file,
 * iceberg/testdata/java-dv.puffin. Running it again gives the same blobs; README.md says how.
 */
public final class Goldens {
  /** A position set: either single positions or half-open ranges of them. */
  private record Golden(long rows, List<long[]> ranges, boolean listed) {
    static Golden positions(long rows, SortedSet<Long> positions) {
      List<long[]> ranges = new ArrayList<>();
      positions.forEach(p -> ranges.add(new long[] {p, p + 1}));
      return new Golden(rows, ranges, true);
    }

    static Golden ranges(long rows, long... bounds) {
      List<long[]> ranges = new ArrayList<>();
      for (int i = 0; i < bounds.length; i += 2) {
        ranges.add(new long[] {bounds[i], bounds[i + 1]});
      }
      return new Golden(rows, ranges, false);
    }

    String json() {
      List<String> items = new ArrayList<>();
      for (long[] r : ranges) {
        items.add(listed ? Long.toString(r[0]) : "[" + r[0] + "," + r[1] + "]");
      }
      return "{\"rows\":" + rows + ",\"" + (listed ? "positions" : "ranges") + "\":[" + String.join(",", items) + "]}";
    }
  }

  private static Map<String, Golden> goldens() {
    Map<String, Golden> sets = new LinkedHashMap<>();
    sets.put("position-0", Golden.positions(1, new TreeSet<>(List.of(0L))));
    sets.put("position-4095", Golden.positions(4096, new TreeSet<>(List.of(4095L))));
    sets.put("last-uint32", Golden.positions(4294967295L, new TreeSet<>(List.of(0L, 4294967294L))));
    sets.put("few", Golden.positions(100, new TreeSet<>(List.of(1L, 5L, 6L, 63L, 64L, 99L))));
    sets.put("all-300000", Golden.ranges(300_000, 0, 300_000));
    sets.put("runs", Golden.ranges(
        200_000, 0, 1000, 4000, 4096, 65_530, 65_546, 131_072, 196_608, 199_999, 200_000));

    // A roaring container holds up to 4,096 values as an array and more as a bitmap.
    SortedSet<Long> border = new TreeSet<>();
    for (long i = 0; i < 4096; i++) {
      border.add(2 * i);
    }
    for (long i = 0; i < 4097; i++) {
      border.add(65_536 + 2 * i);
    }
    sets.put("array-and-bitmap", Golden.positions(140_000, border));

    Random random = new Random(1);
    SortedSet<Long> sparse = new TreeSet<>(List.of(10_000_000L));
    while (sparse.size() < 2000) {
      sparse.add((long) random.nextInt(10_000_000));
    }
    sets.put("sparse-10M", Golden.positions(10_000_001, sparse));

    // Most rows deleted, in short runs with single holes: run containers beside a bitmap.
    List<Long> bounds = new ArrayList<>();
    for (long at = 0; at < 180_000; ) {
      long length = 1 + random.nextInt(at < 65_536 ? 3 : 400);
      bounds.add(at);
      bounds.add(at + length);
      at += length + 1 + random.nextInt(at < 65_536 ? 20 : 3);
    }
    sets.put("dense", Golden.ranges(200_000, bounds.stream().mapToLong(Long::longValue).toArray()));
    return sets;
  }

  public static void main(String[] args) throws IOException {
    Path blobs = Path.of(args[0]).resolve("deletion/testdata");
    Path puffins = Path.of(args[0]).resolve("iceberg/testdata");
    Files.createDirectories(blobs);
    Files.createDirectories(puffins);
    Map<String, Golden> sets = goldens();

    for (Map.Entry<String, Golden> e : sets.entrySet()) {
      Written written = write(Map.of("data/" + e.getKey() + ".parquet", e.getValue()));
      Files.write(blobs.resolve(e.getKey() + ".puffin-blob"), written.blob(0));
      Files.writeString(blobs.resolve(e.getKey() + ".json"), e.getValue().json() + "\n");
    }

    Map<String, Golden> two = new LinkedHashMap<>();
    two.put("data/runs.parquet", sets.get("runs"));
    two.put("data/few.parquet", sets.get("few"));
    Written written = write(two);
    Files.write(puffins.resolve("java-dv.puffin"), written.puffin());
    List<String> entries = new ArrayList<>();
    for (DeleteFile f : written.entries()) {
      entries.add("  {\"referenced_data_file\":\"" + f.referencedDataFile() + "\",\"offset\":" + f.contentOffset()
          + ",\"length\":" + f.contentSizeInBytes() + ",\"cardinality\":" + f.recordCount()
          + ",\"vector\":" + two.get(f.referencedDataFile()).json() + "}");
    }
    Files.writeString(
        puffins.resolve("java-dv.json"), "{\"blobs\":[\n" + String.join(",\n", entries) + "\n]}\n", StandardCharsets.UTF_8);
  }

  /** One Puffin file and the manifest entries that point into it. */
  private record Written(List<DeleteFile> entries, byte[] puffin) {
    byte[] blob(int i) {
      int from = Math.toIntExact(entries.get(i).contentOffset());
      return Arrays.copyOfRange(puffin, from, from + Math.toIntExact(entries.get(i).contentSizeInBytes()));
    }
  }

  /** Writes the sets as deletion vectors of the named data files into one Puffin file. */
  private static Written write(Map<String, Golden> sets) throws IOException {
    try (InMemoryCatalog catalog = new InMemoryCatalog()) {
      catalog.initialize("goldens", Map.of());
      catalog.createNamespace(Namespace.of("n"));
      Table table = catalog.createTable(
          TableIdentifier.of("n", "t"),
          new Schema(Types.NestedField.required(1, "id", Types.LongType.get())),
          PartitionSpec.unpartitioned(),
          Map.of("format-version", "3"));
      OutputFileFactory files = OutputFileFactory.builderFor(table, 1, 1).format(FileFormat.PUFFIN).build();
      BaseDVFileWriter writer = new BaseDVFileWriter(files, path -> null);
      try (writer) {
        sets.forEach((path, set) -> set.ranges().forEach(r -> {
          for (long p = r[0]; p < r[1]; p++) {
            writer.delete(path, p, table.spec(), null);
          }
        }));
      }
      List<DeleteFile> entries = writer.result().deleteFiles();
      try (InputStream in = table.io().newInputFile(entries.get(0).location()).newStream()) {
        return new Written(entries, in.readAllBytes());
      }
    }
  }
}
