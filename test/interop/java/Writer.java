import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetWriter;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.types.Types;

/**
 * Writes a warehouse with Iceberg's Java library, for the test that the readers agree about one pgmirror had no part in.
 *
 * <p>Table public.every_type gets four snapshots: two rows (LSN 100, 101); two more in a second file (200, 201); row 1
 * deleted; rows 2 and 3 too. The last snapshot's vectors, one of which supersedes an older one, share a Puffin file.
 */
public final class Writer {
  private static final Schema SCHEMA = new Schema(
      Types.NestedField.required(1, "id", Types.LongType.get()),
      Types.NestedField.optional(2, "truth", Types.BooleanType.get()),
      Types.NestedField.optional(3, "small", Types.IntegerType.get()),
      Types.NestedField.optional(4, "single", Types.FloatType.get()),
      Types.NestedField.optional(5, "double", Types.DoubleType.get()),
      Types.NestedField.optional(6, "money", Types.DecimalType.of(38, 10)),
      Types.NestedField.optional(7, "text", Types.StringType.get()),
      Types.NestedField.optional(8, "bytes", Types.BinaryType.get()),
      Types.NestedField.optional(9, "uuid", Types.UUIDType.get()),
      Types.NestedField.optional(10, "day", Types.DateType.get()),
      Types.NestedField.optional(11, "clock", Types.TimeType.get()),
      Types.NestedField.optional(12, "moment", Types.TimestampType.withoutZone()),
      Types.NestedField.optional(13, "instant", Types.TimestampType.withZone()),
      Types.NestedField.optional(14, "texts", Types.ListType.ofOptional(15, Types.StringType.get())),
      Types.NestedField.required(16, "_pgmirror_lsn", Types.LongType.get()));

  public static void main(String[] args) throws IOException {
    Path dir = Path.of(args[0]);
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.initialize("pgmirror", Map.of(
        "uri", "jdbc:sqlite:" + dir.resolve("catalog.db"),
        "warehouse", dir.resolve("warehouse").toString(),
        "io-impl", LocalFileIO.class.getName()));
    catalog.createNamespace(Namespace.of("public"));
    Table table = catalog.createTable(
        TableIdentifier.of("public", "every_type"),
        SCHEMA,
        PartitionSpec.unpartitioned(),
        Map.of("format-version", "3"));

    long infinity = Long.MAX_VALUE;
    DataFile first = write(table, dir.resolve("warehouse/first.parquet"),
        row(1L, true, Integer.MIN_VALUE, -0.0f, 0.1, new BigDecimal("-1234567890123456789012345678.0123456789"), "it's", 0,
            Integer.MAX_VALUE, 86_399_999_999L, infinity, -infinity, Arrays.asList("a'b", null, ""), 100),
        row(2L, null, null, null, null, null, null, null, null, null, null, null, null, 101));
    table.newAppend().appendFile(first).commit();

    DataFile second = write(table, dir.resolve("warehouse/second.parquet"),
        row(3L, false, 0, Float.NaN, Double.NEGATIVE_INFINITY, new BigDecimal("0.0000000000"), "", 2,
            -Integer.MAX_VALUE, 0L, -infinity, infinity, List.of(), 200),
        // 4714-11-24 BC, PostgreSQL's first day, and 24:00 less a microsecond of the day before it
        row(4L, true, 7, Float.MIN_VALUE, Double.MAX_VALUE, new BigDecimal("12.5000000000"), "żółw 🐢", 1,
            -2_440_588, 1L, -210_866_803_200_000_000L, -1L, List.of("x"), 201));
    table.newAppend().appendFile(second).commit();

    commitVectors(table, Map.of(), Map.of(first, List.of(0L)));
    commitVectors(table, vectors(table), Map.of(first, List.of(0L, 1L), second, List.of(0L)));
  }

  private static Record row(Long id, Boolean truth, Integer small, Float single, Double wide, BigDecimal money, String text,
      Integer bytes, Integer day, Long clock, Long moment, Long instant, List<String> texts, long lsn) {
    Record r = GenericRecord.create(SCHEMA);
    Object[] values = {
      id, truth, small, single, wide, money, text,
      bytes == null ? null : ByteBuffer.wrap(Arrays.copyOf(new byte[] {0, (byte) 0xff}, bytes)),
      bytes == null ? null : new UUID(bytes, -bytes - 1L),
      day == null ? null : LocalDate.ofEpochDay(day),
      clock == null ? null : LocalTime.ofNanoOfDay(clock * 1000),
      moment == null ? null : utc(moment),
      instant == null ? null : utc(instant).atOffset(ZoneOffset.UTC),
      texts, lsn
    };
    for (int i = 0; i < values.length; i++) {
      r.set(i, values[i]);
    }
    return r;
  }

  private static LocalDateTime utc(long micros) {
    return ChronoUnit.MICROS.addTo(LocalDateTime.of(1970, 1, 1, 0, 0), micros);
  }

  private static DataFile write(Table table, Path path, Record... rows) throws IOException {
    DataWriter<Record> writer = Parquet.writeData(table.io().newOutputFile(path.toString()))
        .forTable(table)
        .createWriterFunc(GenericParquetWriter::create)
        .build();
    try (writer) {
      writer.write(Arrays.asList(rows));
    }
    return writer.toDataFile();
  }

  /** The deletion vectors of the current snapshot by data file. */
  private static Map<String, DeleteFile> vectors(Table table) throws IOException {
    Map<String, DeleteFile> found = new HashMap<>();
    try (var tasks = table.newScan().planFiles()) {
      tasks.forEach(task -> task.deletes().forEach(d -> found.put(task.file().location(), d)));
    }
    return found;
  }

  private static void commitVectors(Table table, Map<String, DeleteFile> old, Map<DataFile, List<Long>> deleted)
      throws IOException {
    OutputFileFactory files = OutputFileFactory.builderFor(table, 1, 1).format(FileFormat.PUFFIN).build();
    BaseDVFileWriter writer = new BaseDVFileWriter(files, path -> (PositionDeleteIndex) null);
    try (writer) {
      deleted.forEach((file, positions) ->
          positions.forEach(p -> writer.delete(file.location(), p, table.spec(), null)));
    }
    RowDelta delta = table.newRowDelta().validateFromSnapshot(table.currentSnapshot().snapshotId());
    writer.result().deleteFiles().forEach(delta::addDeletes);
    old.values().forEach(delta::removeDeletes);
    delta.commit();
  }
}
