import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.UUID;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types.NestedField;

/**
 * Reads Iceberg snapshots with Iceberg's Java library: a request a line on standard input, an answer a line on standard
 * output, both JSON, as test/interop/process.go says. Values are printed in the form of test/interop/doc.go.
 */
public final class Reader {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<String, JdbcCatalog> CATALOGS = new HashMap<>();

  public static void main(String[] args) throws IOException {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      ObjectNode answer;
      try {
        answer = read(JSON.readTree(line));
      } catch (Exception e) {
        e.printStackTrace();
        answer = JSON.createObjectNode().put("error", e.toString());
      }
      out.println(JSON.writeValueAsString(answer));
      out.flush();
    }
  }

  private static ObjectNode read(JsonNode request) throws IOException {
    JdbcCatalog catalog = CATALOGS.computeIfAbsent(request.get("catalog").asText(), path -> {
      JdbcCatalog c = new JdbcCatalog();
      c.initialize(request.get("catalog_name").asText(), Map.of(
          "uri", "jdbc:sqlite:" + path,
          "warehouse", request.get("warehouse").asText(),
          "io-impl", LocalFileIO.class.getName()));
      return c;
    });
    Table table = catalog.loadTable(
        TableIdentifier.of(Namespace.of(request.get("namespace").asText().split("\\.")), request.get("name").asText()));
    long snapshot = request.get("snapshot").asLong();
    Expression filter = request.hasNonNull("above")
        ? Expressions.greaterThan("_pgmirror_lsn", request.get("above").asLong())
        : Expressions.alwaysTrue();
    if (request.hasNonNull("match")) {
      JsonNode match = request.get("match");
      filter = Expressions.equal(match.get("column").asText(), UUID.fromString(match.get("uuid").asText()));
    }

    TableScan scan = table.newScan().useSnapshot(snapshot).filter(filter);
    ObjectNode answer = JSON.createObjectNode();
    ArrayNode columns = answer.putArray("columns");
    List<NestedField> fields = scan.schema().columns();
    fields.forEach(f -> columns.add(f.name()));

    int files = 0;
    try (CloseableIterable<FileScanTask> tasks = scan.planFiles()) {
      for (FileScanTask ignored : tasks) {
        files++;
      }
    }
    answer.put("files", files);

    ArrayNode rows = answer.putArray("rows");
    try (CloseableIterable<Record> records = IcebergGenerics.read(table).useSnapshot(snapshot).where(filter).build()) {
      for (Record record : records) {
        ArrayNode row = rows.addArray();
        for (NestedField f : fields) {
          row.add(text(f.type(), record.getField(f.name())));
        }
      }
    }
    return answer;
  }

  private static String text(Type type, Object value) {
    if (value == null) {
      return "null";
    }
    return switch (type.typeId()) {
      case BOOLEAN, INTEGER, LONG, UUID -> value.toString();
      case FLOAT -> ((Float) value).isNaN() ? "nan" : "0x%08x".formatted(Float.floatToRawIntBits((Float) value));
      case DOUBLE -> ((Double) value).isNaN() ? "nan" : "0x%016x".formatted(Double.doubleToRawLongBits((Double) value));
      case DECIMAL -> ((BigDecimal) value).toPlainString();
      case STRING -> "'" + value.toString().replace("'", "''") + "'";
      case BINARY -> binary((ByteBuffer) value);
      case DATE -> Long.toString(((LocalDate) value).toEpochDay());
      case TIME -> Long.toString(((LocalTime) value).toNanoOfDay() / 1000);
      case TIMESTAMP -> micros(value instanceof OffsetDateTime zoned
          ? zoned.toInstant()
          : ((LocalDateTime) value).toInstant(ZoneOffset.UTC));
      case LIST -> {
        StringJoiner elements = new StringJoiner(",", "[", "]");
        ((List<?>) value).forEach(e -> elements.add(text(type.asListType().elementType(), e)));
        yield elements.toString();
      }
      default -> throw new IllegalArgumentException("no text form for type " + type);
    };
  }

  private static String binary(ByteBuffer value) {
    byte[] bytes = new byte[value.remaining()];
    value.duplicate().get(bytes);
    return "\\x" + HexFormat.of().formatHex(bytes);
  }

  /** Microseconds since the epoch. The seconds of the smallest timestamp do not fit a long once scaled. */
  private static String micros(Instant at) {
    return BigInteger.valueOf(at.getEpochSecond())
        .multiply(BigInteger.valueOf(1_000_000))
        .add(BigInteger.valueOf(at.getNano() / 1000))
        .toString();
  }
}
