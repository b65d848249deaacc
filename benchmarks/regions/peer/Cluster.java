import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.HColumnDescriptor;
import org.apache.hadoop.hbase.HTableDescriptor;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * A whole HBase in this process: ZooKeeper, HDFS, a master and region servers. Arguments are region servers, the delay
 * of the master's dispatcher in milliseconds, and whether regions are assigned by ZooKeeper, which 1.x alone knows. For
 * each line of standard input, a number of regions, it creates, disables, enables and deletes a table. With "split"
 * before the number it splits all regions of a table at once, while a client of each reads one of its rows.
 */
public class Cluster {
  private static final int PATIENCE_MS = 1_800_000;
  private static final String SPLIT = "split ";
  private static final byte[] FAMILY = Bytes.toBytes("f");

  public static void main(String[] arguments) throws Exception {
    HBaseTestingUtility cluster = new HBaseTestingUtility(configured(arguments[1], arguments[2]));
    long began = System.nanoTime();
    cluster.startMiniCluster(Integer.parseInt(arguments[0]));
    say("{\"startS\": %.3f}", seconds(began));
    try (Connection connection = ConnectionFactory.createConnection(cluster.getConfiguration())) {
      BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
      int round = 0;
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        TableName table = TableName.valueOf("t" + round++);
        if (line.startsWith(SPLIT)) {
          split(connection, Integer.parseInt(line.substring(SPLIT.length())), table);
        } else {
          play(connection.getAdmin(), Integer.parseInt(line), table);
        }
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
    long began = System.nanoTime();
    admin.createTable(described(table), splits(regions));
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

  private static void split(Connection connection, int regions, TableName table) throws Exception {
    Admin admin = connection.getAdmin();
    admin.createTable(described(table), splits(regions));
    List<Reader> readers = new ArrayList<>();
    try (Table written = connection.getTable(table)) {
      for (int number = 0; number < regions; number++) {
        written.put(new Put(key(number, regions, "5")).addColumn(FAMILY, FAMILY, FAMILY));
        readers.add(new Reader(connection.getTable(table), key(number, regions, "5")));
      }
    }
    for (Reader one : readers) {
      one.start();
    }
    Thread.sleep(1_000);
    for (Reader one : readers) {
      one.longestNs = 0;
    }
    long began = System.nanoTime();
    for (int number = 0; number < regions; number++) {
      admin.split(table, key(number, regions, "3"));
    }
    while (admin.getTableRegions(table).size() < 2 * regions) {
      Thread.sleep(5);
    }
    for (Reader one : readers) {
      one.awaitNext();
    }
    double took = seconds(began);
    StringBuilder waits = new StringBuilder();
    for (Reader one : readers) {
      one.isOver = true;
      one.join();
      waits.append(waits.length() == 0 ? "" : ", ").append(one.longestNs / 1e9);
    }
    say("{\"regions\": %d, \"s\": %.6f, \"waits\": [%s]}", regions, took, waits);
  }

  /** A client that reads one row again and again. */
  private static class Reader extends Thread {
    private final Table table;
    private final byte[] row;
    private final AtomicInteger reads = new AtomicInteger();
    volatile long longestNs;
    volatile boolean isOver;

    Reader(Table table, byte[] row) {
      this.table = table;
      this.row = row;
      setDaemon(true);
    }

    @Override
    public void run() {
      try {
        while (!isOver) {
          long began = System.nanoTime();
          if (table.get(new Get(row)).isEmpty()) {
            throw new IllegalStateException("a row is lost");
          }
          longestNs = Math.max(longestNs, System.nanoTime() - began);
          reads.incrementAndGet();
          Thread.sleep(20);
        }
      } catch (Exception problem) {
        problem.printStackTrace();
        Runtime.getRuntime().halt(1);
      }
    }

    /** Waits for a read that began after this call. */
    void awaitNext() throws InterruptedException {
      int before = reads.get();
      while (reads.get() < before + 2) {
        Thread.sleep(5);
      }
    }
  }

  private static HTableDescriptor described(TableName table) {
    HTableDescriptor found = new HTableDescriptor(table);
    found.addFamily(new HColumnDescriptor(FAMILY));
    return found;
  }

  private static byte[][] splits(int regions) {
    byte[][] keys = new byte[regions - 1][];
    for (int number = 1; number < regions; number++) {
      keys[number - 1] = key(number, regions, "");
    }
    return keys;
  }

  private static byte[] key(int number, int regions, String end) {
    return Bytes.toBytes(String.format("%08x", number * (1L << 32) / regions) + end);
  }

  private static double seconds(long began) {
    return (System.nanoTime() - began) / 1e9;
  }

  private static void say(String format, Object... values) {
    System.out.printf(Locale.ROOT, format + "%n", values);
    System.out.flush();
  }
}
