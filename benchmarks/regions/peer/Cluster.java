import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Locale;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.HColumnDescriptor;
import org.apache.hadoop.hbase.HTableDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * A whole HBase in this process: ZooKeeper, HDFS, a master and region servers. Arguments are region servers, the delay
 * of the master's dispatcher in milliseconds, and whether regions are assigned by ZooKeeper, which 1.x alone knows. For
 * each line of standard input, a number of regions, it creates, disables, enables and deletes a table.
 */
public class Cluster {
  private static final int PATIENCE_MS = 1_800_000;

  public static void main(String[] arguments) throws Exception {
    HBaseTestingUtility cluster = new HBaseTestingUtility(configured(arguments[1], arguments[2]));
    long began = System.nanoTime();
    cluster.startMiniCluster(Integer.parseInt(arguments[0]));
    say("{\"startS\": %.3f}", seconds(began));
    try (Connection connection = ConnectionFactory.createConnection(cluster.getConfiguration())) {
      BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
      int round = 0;
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        play(connection.getAdmin(), Integer.parseInt(line), TableName.valueOf("t" + round++));
      }
    }
    Runtime.getRuntime().halt(0);
  }

  private static Configuration configured(String delayMs, String usesZookeeper) {
    Configuration found = HBaseConfiguration.create();
    found.setInt("hbase.master.info.port", -1);
    found.setInt("hbase.regionserver.info.port", -1);
    found.set("hbase.procedure.remote.dispatcher.delay.msec", delayMs);
    found.set("hbase.assignment.usezk", usesZookeeper);
    found.setInt("hbase.client.operation.timeout", PATIENCE_MS);
    found.setInt("hbase.client.sync.wait.timeout.msec", PATIENCE_MS);
    // The client asks whether a change has ended, after pauses that grow to 200 times this one.
    found.setInt("hbase.client.pause", 1);
    found.setInt("hbase.client.retries.number", 30_000);
    found.setInt("hbase.master.start.timeout.localHBaseCluster", 300_000);
    found.setInt("zookeeper.session.timeout", 180_000);
    found.setInt("hbase.zookeeper.property.maxSessionTimeout", 180_000);
    found.setInt("hbase.zookeeper.property.tickTime", 9_000);
    return found;
  }

  private static void play(Admin admin, int regions, TableName table) throws Exception {
    HTableDescriptor described = new HTableDescriptor(table);
    described.addFamily(new HColumnDescriptor("f"));
    long began = System.nanoTime();
    admin.createTable(described, splits(regions));
    double createS = seconds(began);
    began = System.nanoTime();
    admin.disableTable(table);
    double disableS = seconds(began);
    began = System.nanoTime();
    admin.enableTable(table);
    double enableS = seconds(began);
    admin.disableTable(table);
    admin.deleteTable(table);
    say("{\"regions\": %d, \"create\": %.6f, \"disable\": %.6f, \"enable\": %.6f}", regions, createS, disableS, enableS);
  }

  private static byte[][] splits(int regions) {
    byte[][] keys = new byte[regions - 1][];
    for (int number = 1; number < regions; number++) {
      keys[number - 1] = Bytes.toBytes(String.format("%08x", number * (1L << 32) / regions));
    }
    return keys;
  }

  private static double seconds(long began) {
    return (System.nanoTime() - began) / 1e9;
  }

  private static void say(String format, Object... values) {
    System.out.printf(Locale.ROOT, format + "%n", values);
    System.out.flush();
  }
}
