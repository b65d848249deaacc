import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.ClusterMetricsBuilder;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.RegionMetricsBuilder;
import org.apache.hadoop.hbase.ServerMetrics;
import org.apache.hadoop.hbase.ServerMetricsBuilder;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.Size;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionInfoBuilder;
import org.apache.hadoop.hbase.master.MockNoopMasterServices;
import org.apache.hadoop.hbase.master.RegionPlan;
import org.apache.hadoop.hbase.master.balancer.StochasticLoadBalancer;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * HBase's stochastic balancer alone. Arguments: a file of regions (number, server, table and four loads, all whole
 * numbers), the number of servers, and the file for plans. For each line of standard input it makes a plan.
 */
public class Balancing {
  private static final int LOADS_KEPT = 2;

  private final List<long[]> rows = new ArrayList<>();
  private final List<ServerName> servers = new ArrayList<>();
  private final Map<Long, RegionInfo> regions = new HashMap<>();

  private Balancing(Path file, int count) throws Exception {
    for (int number = 0; number < count; number++) {
      servers.add(ServerName.valueOf("s" + number, 100, 1));
    }
    for (String line : Files.readAllLines(file)) {
      String[] parts = line.split(" ");
      long[] row = new long[parts.length];
      for (int at = 0; at < row.length; at++) {
        row[at] = Long.parseLong(parts[at]);
      }
      rows.add(row);
      regions.put(row[0], RegionInfoBuilder.newBuilder(TableName.valueOf("t" + row[2]))
          .setStartKey(Bytes.toBytes(row[0])).setEndKey(Bytes.toBytes(row[0] + 1)).setRegionId(row[0]).build());
    }
  }

  private Map<TableName, Map<ServerName, List<RegionInfo>>> placed() {
    Map<TableName, Map<ServerName, List<RegionInfo>>> found = new HashMap<>();
    for (long[] row : rows) {
      RegionInfo region = regions.get(row[0]);
      Map<ServerName, List<RegionInfo>> table = found.computeIfAbsent(region.getTable(), one -> {
        Map<ServerName, List<RegionInfo>> all = new TreeMap<>();
        servers.forEach(server -> all.put(server, new ArrayList<>()));
        return all;
      });
      table.get(servers.get((int) row[1])).add(region);
    }
    return found;
  }

  /** Reports all loads: counters of requests are 0 first, and then what a region has had since. */
  private void report(StochasticLoadBalancer balancer, int times) {
    List<List<RegionMetrics>> each = new ArrayList<>();
    servers.forEach(one -> each.add(new ArrayList<>()));
    for (long[] row : rows) {
      each.get((int) row[1]).add(RegionMetricsBuilder.newBuilder(regions.get(row[0]).getRegionName())
          .setReadRequestCount(row[3] * times).setWriteRequestCount(row[4] * times)
          .setStoreFileSize(new Size(row[5], Size.Unit.MEGABYTE))
          .setMemStoreSize(new Size(row[6], Size.Unit.MEGABYTE)).build());
    }
    Map<ServerName, ServerMetrics> live = new HashMap<>();
    for (int number = 0; number < servers.size(); number++) {
      ServerName server = servers.get(number);
      live.put(server, ServerMetricsBuilder.newBuilder(server).setRegionMetrics(each.get(number)).build());
    }
    balancer.updateClusterMetrics(ClusterMetricsBuilder.newBuilder().setLiveServerMetrics(live).build());
  }

  private void play(Path plans) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.setInt("hbase.master.balancer.stochastic.numRegionLoadsToRemember", LOADS_KEPT);
    conf.setBoolean("hbase.master.balancer.uselocality", false);
    StochasticLoadBalancer balancer = new StochasticLoadBalancer();
    balancer.setMasterServices(new MockNoopMasterServices(conf));
    balancer.initialize();
    for (int times = 0; times < LOADS_KEPT; times++) {
      report(balancer, times);
    }
    Map<TableName, Map<ServerName, List<RegionInfo>>> placed = placed();
    long cpuBefore = cpuNs();
    long began = System.nanoTime();
    List<RegionPlan> found = balancer.balanceCluster(placed);
    double took = (System.nanoTime() - began) / 1e9;
    double cpu = (cpuNs() - cpuBefore) / 1e9;
    int moves = found == null ? 0 : found.size();
    try (PrintWriter out = new PrintWriter(plans.toFile())) {
      for (int at = 0; at < moves; at++) {
        RegionPlan one = found.get(at);
        out.println(one.getRegionInfo().getRegionId() + " " + servers.indexOf(one.getDestination()));
      }
    }
    System.out.printf(Locale.ROOT, "{\"moves\": %d, \"s\": %.6f, \"cpuS\": %.6f}%n", moves, took, cpu);
  }

  private static long cpuNs() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }

  public static void main(String[] arguments) throws Exception {
    Balancing balancing = new Balancing(Path.of(arguments[0]), Integer.parseInt(arguments[1]));
    System.out.printf("{\"regions\": %d}%n", balancing.rows.size());
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      balancing.play(Path.of(arguments[2]));
    }
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
