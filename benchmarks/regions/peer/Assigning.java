package org.apache.hadoop.hbase.master.assignment;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.ServerMetrics;
import org.apache.hadoop.hbase.ServerMetricsBuilder;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.RegionInfo;

/**
 * HBase's assignment manager alone, on the simulated servers of its own tests: arguments are servers and the delay of its
 * dispatcher in milliseconds. For each line of standard input, a number of regions, it assigns a new table.
 */
public class Assigning extends TestAssignmentManagerBase {
  private final int delayMs;

  private Assigning(int delayMs) {
    this.delayMs = delayMs;
  }

  @Override
  protected void setupConfiguration(Configuration conf) throws Exception {
    super.setupConfiguration(conf);
    conf.setInt("hbase.procedure.remote.dispatcher.delay.msec", delayMs);
  }

  private void serve(int servers) throws Exception {
    setUp();
    rsDispatcher.setMockRsExecutor(new GoodRsExecutor());
    for (int number = NSERVERS; number < servers; number++) {
      ServerName server = ServerName.valueOf("localhost", 100 + number, 1);
      ServerMetrics metrics =
          ServerMetricsBuilder.newBuilder(server).setLastReportTimestamp(System.currentTimeMillis()).build();
      master.getServerManager().regionServerReport(server, metrics);
    }
    int online = master.getServerManager().getOnlineServersList().size();
    String store = master.getMasterProcedureExecutor().getStore().getClass().getSimpleName();
    System.out.printf("{\"servers\": %d, \"store\": \"%s\"}%n", online, store);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    int round = 0;
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      play(Integer.parseInt(line), TableName.valueOf("t" + round++));
    }
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  private void play(int count, TableName table) throws Exception {
    List<RegionInfo> regions = new ArrayList<>(count);
    for (int number = 0; number < count; number++) {
      regions.add(createRegionInfo(table, number));
    }
    long cpuBefore = cpuNs();
    long began = System.nanoTime();
    TransitRegionStateProcedure[] procedures = am.createRoundRobinAssignProcedures(regions);
    List<Future<byte[]>> ends = new ArrayList<>(count);
    for (TransitRegionStateProcedure one : procedures) {
      ends.add(submitProcedure(one));
    }
    for (Future<byte[]> one : ends) {
      waitOnFuture(one);
    }
    double took = (System.nanoTime() - began) / 1e9;
    double cpu = (cpuNs() - cpuBefore) / 1e9;
    long open = regions.stream().filter(one -> am.getRegionStates().getRegionState(one).isOpened()).count();
    am.getRegionStates().deleteRegions(regions);
    System.out.printf(Locale.ROOT, "{\"regions\": %d, \"open\": %d, \"s\": %.6f, \"cpuS\": %.6f}%n", count, open, took, cpu);
  }

  private static long cpuNs() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }

  public static void main(String[] arguments) throws Exception {
    new Assigning(Integer.parseInt(arguments[1])).serve(Integer.parseInt(arguments[0]));
  }
}
